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
from tool_runs import build_with_tools, double, told

import rollwise as rw
from rollwise.integrations.trl import AdaptiveSampling
from rollwise.integrations.trl.tools import cannot_parse
from rollwise.step import Episode

WAYS = {
    "rounds": AdaptiveSampling(prompt_sampler=rw.CDAS),
    "streamed": AdaptiveSampling(schedule=rw.Streamed(max_samples=16), unresolved="refill"),
    "pilot": AdaptiveSampling(allocation=rw.GVM(mean_draws=4, pilot=3, maximum=8)),
    "single": AdaptiveSampling(
        prompt_sampler=rw.Worth,
        exit_rule=rw.FixedCount(1),
        schedule=rw.Rounds(1, rounds=1),
        group_size=1,
        strategy="all",
        objective="linear",
        baseline="belief",
        response_cap=100.0,  # more than any response has, so that its first update changes nothing
    ),
    "trl": AdaptiveSampling(engine="trl"),
}


class Shop:
    """An environment: each draw has its own, and sees what it alone has asked."""

    def reset(self, price, **others):
        self.price, self.asked = price, 0
        return str(price)

    def double(self, number: int) -> str:
        """Double a number.

        Args:
            number: What is doubled.
        """
        self.asked += 1
        return str(2 * number)


def bought(environments, completions, price, **others):
    """1.0 where the environment was asked; each must be its row's, and its draw's."""
    for environment, messages, own in zip(environments, completions, price, strict=True):
        assert environment.price == own
        assert sum(m["role"] == "tool" for m in messages) <= environment.asked
    return [float(environment.asked > 0) for environment in environments]


ROWS = [{"prompt": [{"role": "user", "content": "1"}], "price": n} for n in range(12)]
WITH_TOOLS = {
    "tools": (
        AdaptiveSampling(schedule=rw.Rounds(size=4, rounds=3)),
        {"given": {"tools": [double], "reward_funcs": told}},
    ),
    "environments": (
        AdaptiveSampling(schedule=rw.Streamed(max_samples=12)),
        {"rows": ROWS, "given": {"environment_factory": Shop, "reward_funcs": bought}},
    ),
}


def train(sampling, folder, rank, ranks, build=build, **options):
    rows = PROMPTS * GROUP // ranks
    trainer = build(folder, sampling, per_device_train_batch_size=rows, **options)
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
    bounds = [] if trainer.response_cap is None else trainer.response_cap.bounds.tolist()
    return {
        "steps": steps,
        "tokens": tokens,
        "draws": draws,
        "weights": weights,
        "bounds": bounds,
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
        "turns": Episode.of(row.completion).price.turns,
    }


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with tempfile.TemporaryDirectory() as folder:
        found = {name: train(way, folder, rank, ranks) for name, way in WAYS.items()}
        with_tools = {} if cannot_parse() else WITH_TOOLS
        for name, (way, options) in with_tools.items():
            found[name] = train(way, folder, rank, ranks, build_with_tools, **options)
    if rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
