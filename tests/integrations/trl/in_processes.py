"""Trains in each of several processes that torchrun starts; the first writes what was trained on.

python -m torch.distributed.run --nproc_per_node 2 in_processes.py FILE
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from tiny_runs import GROUP, PROMPTS, build

import rollwise as rw
from rollwise.integrations.trl import AdaptiveSampling

WAYS = {
    "rounds": AdaptiveSampling(prompt_sampler=rw.CDAS),
    "streamed": AdaptiveSampling(schedule=rw.Streamed(max_samples=16), zero_variance="refill"),
    "pilot": AdaptiveSampling(allocation=rw.GVM(mean_draws=4, pilot=3, maximum=8)),
    "single": AdaptiveSampling(
        prompt_sampler=rw.Worth,
        exit_rule=rw.FixedCount(1),
        schedule=rw.Rounds(1, rounds=1),
        group_size=1,
        strategy="all",
        objective="linear",
        baseline="belief",
        response_cap=1.0,
    ),
    "trl": AdaptiveSampling(engine="trl"),
}


def train(sampling, folder, rank, ranks):
    rows = PROMPTS * GROUP // ranks
    trainer = build(folder, sampling, per_device_train_batch_size=rows)
    steps, batches = [], []
    sample, score = trainer._sample, trainer._generate_and_score_completions

    def keep_rows():
        rows = sample()
        steps.append([describe(trainer, row) for row in rows])
        return rows

    def keep_batch(inputs):
        batches.append(score(inputs))
        return batches[-1]

    trainer._sample, trainer._generate_and_score_completions = keep_rows, keep_batch
    trainer.train()
    part = PROMPTS * GROUP // ranks
    for rows, batch in zip(steps, batches, strict=True):
        own = rows[rank * part : (rank + 1) * part]
        wanted = torch.tensor([row["advantage"] for row in own])
        torch.testing.assert_close(batch["advantages"], wanted)
    tokens = [int(batch["num_items_in_batch"]) for batch in batches]
    draws = [line["rollwise/draws"] for line in trainer.state.log_history if "loss" in line]
    weights = sum(float(p.double().abs().sum()) for p in trainer.model.parameters())
    return {
        "steps": steps,
        "tokens": tokens,
        "draws": draws,
        "weights": weights,
    }


def describe(trainer, row):
    draw = row.completion.draw
    return {
        "key": draw.key,
        "index": draw.index,
        "rewards": trainer._engine.rewards[draw],
        "tokens": row.completion.tokens,
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
