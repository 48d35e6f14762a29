"""Trains in each of several processes that torchrun starts; the first writes what was trained on.

python -m torch.distributed.run --nproc_per_node 2 in_processes.py FILE
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from tiny_runs import GROUP, PROMPTS, build, keep, logged

import rollwise as rw
from rollwise.integrations.trl import AdaptiveSampling

WAYS = {
    "rounds": AdaptiveSampling(prompt_sampler=rw.CDAS),
    "streamed": AdaptiveSampling(schedule=rw.Streamed(max_samples=16), zero_variance="refill"),
    "single": AdaptiveSampling(
        prompt_sampler=rw.Worth,
        exit_rule=rw.FixedCount(1),
        schedule=rw.Rounds(1, rounds=1),
        group_size=1,
        strategy="all",
        objective="linear",
        baseline="belief",
        normalize_gradients=True,
    ),
    "trl": AdaptiveSampling(engine="trl"),
}


def train(sampling, folder, rank, ranks):
    rows = PROMPTS * GROUP // ranks
    trainer = build(folder, sampling, per_device_train_batch_size=rows)
    steps = keep(trainer, "_sample", lambda every: [describe(trainer, row) for row in every])
    batches = keep(trainer, "_generate_and_score_completions")
    trainer.train()
    for every, batch in zip(steps, batches, strict=True):
        own = every[rank * rows : (rank + 1) * rows]
        wanted = torch.tensor([row["advantage"] for row in own])
        torch.testing.assert_close(batch["advantages"], wanted)
    return {
        "steps": steps,
        "tokens": [int(batch["num_items_in_batch"]) for batch in batches],
        "draws": logged(trainer, "rollwise/draws"),
        "weights": sum(float(p.double().abs().sum()) for p in trainer.model.parameters()),
    }


def describe(trainer, row):
    draw = row.draw
    return {
        "key": draw.key,
        "index": draw.index,
        "rewards": trainer._engine.graded[draw].rewards,
        "tokens": row.response.tokens,
        "advantage": row.advantage,
        "counts": row.counts,
    }


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with tempfile.TemporaryDirectory() as folder:
        found = {name: train(way, folder, rank, ranks) for name, way in WAYS.items()}
    if rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
