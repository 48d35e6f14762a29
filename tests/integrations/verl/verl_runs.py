"""Runs of released verl on the CPU (`verl_on_cpu.py`), and what must be true of each."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rollwise.config import read_toml
from rollwise.config.step import make_sampler, step_recipe
from rollwise.integrations.verl.settings import read_settings
from rollwise.records import flatten
from rollwise.records.states import load_sampler
from rollwise.step import Response, make_group
from rollwise.step.step import make_groups

HERE = Path(__file__).parent
ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
}
"""Of a run: loads `verl_on_cpu` into every process of verl's."""

LIMIT = 1800
"""Seconds for a run: a guard, not a measure."""

SEPARATE = """
verl.trainer.v1.trainer_mode = "separate_async"
verl.trainer.v1.sampler.max_off_policy_threshold = 3
verl.actor_rollout_ref.rollout.nnodes = 1
verl.actor_rollout_ref.rollout.n_gpus_per_node = 1
verl.actor_rollout_ref.rollout.checkpoint_engine.backend = "cpu"
verl.ray_kwargs.ray_init.num_gpus = 2
"""
"""verl's settings for engines beside the learner, on devices of their own."""


def begin(folder, settings, *arguments, workers=1, verl=""):
    """Start `rollwise verl` in a process group of its own.

    `settings` are rollwise's and `verl` verl's own, beside those of `cpu.toml`; `workers` are
    learners, engines and agent loop workers.
    """
    settings_file = folder.parent / f"{folder.name}.toml"
    text = (HERE / "cpu.toml").read_text()
    for name in ("n_gpus_per_node", "num_gpus", "agent.num_workers"):
        text = text.replace(f"{name} = 1", f"{name} = {workers}")
    settings_file.write_text(as_toml(tomllib.loads(text), tomllib.loads(verl)))
    options = [part for key, value in settings.items() for part in (f"--{key}", str(value))]
    command = [sys.executable, "-m", "rollwise", "verl", str(settings_file), *arguments]
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": path, "VERL_ON_CPU": str(folder)}
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--output", str(folder), *options],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def as_toml(*layers):
    """Write settings as TOML, one a line under its whole name; later layers win."""
    named = {name: value for layer in layers for name, value in flatten(layer, ".").items()}
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in named.items())


def run(folder, settings, *arguments, workers=1, verl=""):
    process = begin(folder, settings, *arguments, workers=workers, verl=verl)
    try:
        code = process.wait(LIMIT)
    finally:
        kill(process)
    log = (folder.parent / f"{folder.name}.log").read_text(errors="replace")
    assert code == 0, log[-6000:]
    steps = config_of(settings).steps
    assert [line["step"] for line in metrics_of(folder)] == list(range(steps + 1))


def kill(process):
    """End a run and all that it started, as a machine that goes down does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_killed(folder, settings, after=2, verl=""):
    """Kill a run once the checkpoint of the step `after` is complete, and resume it."""
    marker = folder / "checkpoints/latest_checkpointed_iteration.txt"
    process = begin(folder, settings, verl=verl)
    try:
        until = time.monotonic() + LIMIT
        while process.poll() is None and not (marker.exists() and marker.read_text() == str(after)):
            assert time.monotonic() < until, f"no checkpoint of step {after}"
            time.sleep(0.05)
    finally:
        kill(process)
    assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    run(folder, settings, "--resume", verl=verl)


def config_of(settings):
    layers = [read_toml(HERE / "cpu.toml")]
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        layers.append({section: {name: value}} if section else {name: value})
    return read_settings(layers)[0]


def metrics_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def recorded_pools(folder):
    """step -> prompt -> the rows of its pool, in draw order."""
    pools = defaultdict(dict)
    for row in pq.read_table(folder / "samples").to_pylist():
        pools[row["step"]].setdefault(row["key"], []).append(row)
    return pools


def learnt_rows(folder):
    """step -> (prompt, draw) -> the rows that verl's learner was given in the end, no padding."""
    lines = [json.loads(line) for line in (folder / "learnt.jsonl").read_text().splitlines()]
    last = {row["step"]: row["pid"] for row in lines}
    steps, names = defaultdict(lambda: defaultdict(list)), set()
    for row in lines:
        if row["pid"] == last[row["step"]] and not row["name"].startswith("pad"):
            assert (row["step"], row["name"]) not in names, f"{row['name']} is trained on twice"
            names.add((row["step"], row["name"]))
            steps[row["step"]][row["key"], int(row["name"].rsplit("_", 2)[1])].append(row)
    return steps


def expected_advantages(config, pools, believed, learnt):
    """(prompt, draw) -> its advantage by the core, without the prompts that are left out.

    Of the recorded rows of each prompt's pool, what was `believed` of it when it was asked for, and
    what the learner was given: its probabilities say how large gradients are.
    """
    recipe = step_recipe(config)
    priors = [believed[key] for key in pools] if recipe.uses_priors else None
    session = recipe.session(pools, 0, priors=priors)
    for key, rows in pools.items():
        for row in rows:
            logprobs = (
                learnt[key, row["index"]][0]["logprobs"] if recipe.normalize_gradients else []
            )
            response = Response(range(row["tokens"]), np.array(logprobs))
            session.pools[key].take(row["reward"], response)
    make = lambda pool: make_group(recipe, pool)  # noqa: E731
    return {
        (group.pool.key, pools[group.pool.key][place]["index"]): value
        for group in make_groups(recipe, list(session.pools.values()), make)
        for place, value in zip(group.members.indices, group.advantages, strict=True)
        if not group.dropped
    }


def columns_in(problems):
    """What the file says of its prompts, as features of a belief."""
    rows = [json.loads(row["extra_info"]["features"]) for row in problems]
    return {name: [row[name] for row in rows] for name in rows[0]}


def check(folder, settings, problems=None, ahead=False):
    """Compute each step anew from the recorded pools, with a sampler that is asked and told alone.

    Every prompt and every draw is accounted for; verl learned from the groups and advantages of the
    pools; and each checkpoint holds the sampler's state. `ahead` says that a step's prompts are
    asked for before the first one's are drawn. Returns what verl learned from.
    """
    config = config_of(settings)
    problems = pq.read_table(problems or folder / "data/train.parquet").to_pylist()
    keys = [row["extra_info"]["key"] for row in problems]
    make = lambda: make_sampler(config, keys, columns_in(problems))  # noqa: E731
    alone, saved, believed, waiting = make(), make(), {}, []
    lines = {line["step"]: line for line in metrics_of(folder)}
    if before := lines[0].get("heldout"):
        alone.start_at(next(iter(before.values()))["value"])
    learnt, pools = learnt_rows(folder), recorded_pools(folder)
    assert sorted(learnt) == sorted(pools) == list(range(1, config.steps + 1))
    for step, used in sorted(pools.items()):
        for _ in range(2 if ahead and step == 1 else 1):
            asked = alone.ask(config.prompts.batch_size, exclude=waiting)
            believed |= dict(zip(asked, alone.pass_rate_priors(asked).tolist(), strict=True))
            waiting += asked
        assert set(used) <= set(waiting)
        assert len(used) == config.prompts.batch_size
        waiting = [key for key in waiting if key not in used]
        expected = expected_advantages(config, used, believed, learnt[step])
        check_learnt(used, learnt[step], expected)
        check_figures(lines[step], used, expected, waiting)
        told = sorted(used)
        rewards = [np.array([row["reward"] for row in used[key]]) for key in told]
        alone.tell(told, correct=[int(r.sum()) for r in rewards], drawn=[len(r) for r in rewards])
        if step % config.checkpoint.every == 0:
            state = load_sampler(folder / f"checkpoints/global_step_{step}/rollwise", saved)
            assert state["step"] == step
            assert sorted(state["under_way"].values()) == sorted(waiting)
            for name, value in alone.state_dict().items():
                same_value(saved.state_dict()[name], value)
    return learnt


def same_value(found, value):
    """Numbers may differ in their last bits: prompts are told in another order there."""
    if np.issubdtype(np.asarray(value).dtype, np.floating):
        np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-12)
    else:
        np.testing.assert_array_equal(found, value)


def check_learnt(used, learnt, expected):
    """Every row of a draw has the draw's reward and advantage."""
    recorded = {(key, row["index"]): row["reward"] for key, rows in used.items() for row in rows}
    for name, rows in learnt.items():
        assert {row["reward"] for row in rows} == {recorded[name]}
    found = {name: {row["advantage"] for row in rows} for name, rows in learnt.items()}
    # Of a part of the step in which no group carries signal, verl learns from one at 0.
    assert all(found.pop(name) == {0.0} for name in found.keys() - expected.keys())
    assert all(len(values) == 1 for values in found.values())
    assert {name: values.pop() for name, values in found.items()} == pytest.approx(expected)


def check_figures(line, used, expected, waiting):
    counts = Counter({key: len(rows) for key, rows in used.items()})
    ledger = line["ledger"]
    draws = ledger["draws"]
    assert draws["trained"] == sum(value != 0 for value in expected.values())
    assert draws["trained"] + draws["spare"] + draws["zero_variance"] == counts.total()
    assert line["draws"] == counts.total() + line["surplus_draws"]
    assert sum(line["ends"].values()) == counts.total()
    assert sum(ledger["tokens"].values()) == line["tokens"]
    assert line["failed_draws"] == line["lost_draws"] == line["failed_prompts"] == 0
    assert line.get("prompts_under_way", 0) == len(waiting)
    assert 0 <= line.get("steps_off_policy", 0) <= 2
