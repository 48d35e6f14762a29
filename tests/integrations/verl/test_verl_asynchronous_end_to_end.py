"""Released verl trains asynchronously on the CPU with our plug-in, killed once and resumed."""

import json
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("verl")

from test_verl_end_to_end import (
    SINGLE,
    columns_in,
    config_of,
    expected_advantages,
    metrics_of,
    recorded_pools,
    run_killed,
)

from rollwise.config.step import make_sampler
from rollwise.records.states import load_sampler

pytestmark = [pytest.mark.verl, pytest.mark.slow]

STEPS, BATCH, KILLED_AFTER = 10, 4, 4

COMMON = {
    "steps": STEPS,
    "prompts.batch_size": BATCH,
    "records.prompts_per_step": BATCH,
    "checkpoint.every": 2,
    "checkpoint.keep": STEPS,
}

GROUPS = {
    "prompts.type": "cdas",
    "schedule.size": 4,
    "schedule.rounds": 2,
    "learner.mini_batches": 2,
}

COLOCATED = """
verl.trainer.v1.trainer_mode = "colocate_async"
verl.trainer.v1.sampler.max_off_policy_threshold = 3
"""

SEPARATE = """
verl.trainer.v1.trainer_mode = "separate_async"
verl.trainer.v1.sampler.max_off_policy_threshold = 3
verl.actor_rollout_ref.rollout.nnodes = 1
verl.actor_rollout_ref.rollout.n_gpus_per_node = 1
verl.actor_rollout_ref.rollout.checkpoint_engine.backend = "cpu"
verl.ray_kwargs.ray_init.num_gpus = 2
"""


def rows_of(folder):
    """step -> what verl's learner was given in the end, padding left out: (key, draw) -> row."""
    lines = [json.loads(line) for line in (folder / "learnt.jsonl").read_text().splitlines()]
    last = {row["step"]: row["pid"] for row in lines}
    steps = {step: {} for step in last}
    for row in lines:
        if row["pid"] == last[row["step"]] and not row["name"].startswith("pad"):
            name = row["key"], int(row["name"].rsplit("_", 2)[1])
            assert name not in steps[row["step"]], f"{name} is trained on twice"
            steps[row["step"]][name] = row
    return steps


def check(folder, settings):
    """Account for every prompt and every draw, with a sampler that is asked and told on its own."""
    config = config_of(settings)
    problems = pq.read_table(folder / "data/train.parquet").to_pylist()
    keys = [row["extra_info"]["key"] for row in problems]
    make = lambda: make_sampler(config, keys, columns_in(problems))  # noqa: E731
    alone, saved, learnt, pools = make(), make(), rows_of(folder), recorded_pools(folder)
    assert sorted(learnt) == sorted(pools) == list(range(1, STEPS + 1))
    lines = {line["step"]: line for line in metrics_of(folder)}
    waiting, believed = alone.ask(BATCH), {}  # the prompts that are asked ahead
    believed |= dict(zip(waiting, alone.pass_rate_priors(waiting).tolist(), strict=True))
    for step in range(1, STEPS + 1):
        asked = alone.ask(BATCH, exclude=waiting)
        believed |= dict(zip(asked, alone.pass_rate_priors(asked).tolist(), strict=True))
        waiting += asked
        used = pools[step]
        assert set(used) <= set(waiting) and len(used) == BATCH
        waiting = [key for key in waiting if key not in used]
        told = sorted(used)
        rewards = {key: [row["reward"] for row in used[key]] for key in told}
        rows = {key: {} for key in used}
        for (key, draw), row in learnt[step].items():
            rows[key][draw] = row
        single = config.step.response_cap > 0
        found = expected_advantages(config, used, *([believed, rows] if single else []))
        expected = {(key, draw): a for key, own in found.items() for draw, a in own.items()}
        found = {name: row["advantage"] for name, row in learnt[step].items()}
        # Of a part of the step in which no group carries signal, verl learns from one at 0.
        assert {found.pop(name) for name in set(found) - set(expected)} <= {0.0}
        assert found == pytest.approx(expected)
        check_figures(lines[step], rewards, expected, waiting)
        counts = Counter({key: len(own) for key, own in rewards.items()})
        correct = [int(sum(rewards[key])) for key in told]
        alone.tell(told, correct=correct, drawn=[counts[key] for key in told])
        if step % 2 == 0:
            checkpoint = folder / f"checkpoints/global_step_{step}/rollwise"
            state = load_sampler(checkpoint, saved)
            assert state["step"] == step
            assert sorted(state["under_way"].values()) == sorted(waiting)
            for name, value in alone.state_dict().items():
                np.testing.assert_array_equal(saved.state_dict()[name], value)


def check_figures(line, rewards, trained, waiting):
    pooled = sum(map(len, rewards.values()))
    ledger = line["ledger"]["draws"]
    assert ledger["trained"] == len(trained)
    assert ledger["trained"] + ledger["spare"] + ledger["zero_variance"] == pooled
    assert line["draws"] == pooled + line["surplus_draws"] + line["stale_draws"]
    assert line["lost_draws"] == line["failed_prompts"] == line["stale_prompts"] == 0
    assert line["prompts_under_way"] == len(waiting)
    assert 0 <= line["steps_off_policy"] <= 2


def test_single_responses_by_colocated_engines(tmp_path):
    settings = {**SINGLE, **COMMON}
    folder = tmp_path / "colocated"
    run_killed(folder, settings, KILLED_AFTER, STEPS, COLOCATED)
    check(folder, settings)
    assert max(line["steps_off_policy"] for line in metrics_of(folder)[1:]) > 0


def test_groups_by_separate_engines(tmp_path):
    settings = {**GROUPS, **COMMON}
    folder = tmp_path / "separate"
    run_killed(folder, settings, KILLED_AFTER, STEPS, SEPARATE)
    check(folder, settings)
    assert max(line["steps_off_policy"] for line in metrics_of(folder)[1:]) > 0
