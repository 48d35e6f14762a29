"""Released verl trains on the CPU with our plug-in: each run takes one to two minutes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("verl")

import pyarrow.parquet as pq
from verl_on_cpu import ENVIRONMENT

from rollwise.cli import main
from rollwise.config import read_toml
from rollwise.config.step import make_sampler, step_recipe
from rollwise.integrations.verl.settings import split, train_config
from rollwise.records import flatten
from rollwise.records.states import load_sampler
from rollwise.step import make_group
from rollwise.step.step import make_groups

pytestmark = [pytest.mark.verl, pytest.mark.slow]

HERE = Path(__file__).parent
LIMIT = 1800
"""Seconds for a run: a guard, not a measure."""

ADA = {"schedule.size": 4, "schedule.rounds": 3}
CDAS = {"prompts.type": "cdas", "exit.type": "fixed_count"}
BOTH = {
    "prompts.type": "cdas",
    "schedule.type": "streamed",
    "schedule.max_samples": 12,
    "exit.give_up_below": 0.1,
    "group.strategy": "all",
}

SINGLE = {"learner.mini_batches": 2, "learner.old_logprobs": "engine"}
"""No method is named: single responses, by belief and worth, with the cap."""


def columns_in(problems):
    """What the file says of its prompts, as features of a belief."""
    rows = [json.loads(row["extra_info"]["features"]) for row in problems]
    return {name: [row[name] for row in rows] for name in rows[0]}


def begin(folder, settings, *arguments, workers=1, verl=""):
    """Start `rollwise verl` in a process group of its own.

    Args:
        folder: The run's.
        settings: rollwise's, beside those of `cpu.toml`.
        arguments: Of the command.
        workers: Learners, engines and agent loop workers.
        verl: Tables of verl's own settings, in place of those of `cpu.toml`.
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


def kill(process):
    """End a run and all that it started, as a machine that goes down does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def config_of(settings):
    layers = [read_toml(HERE / "cpu.toml")]
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        layers.append({section: {name: value}} if section else {name: value})
    return train_config(split(layers)[0])


def recorded_pools(folder):
    """step -> prompt -> the rows of its pool, in draw order."""
    pools = defaultdict(dict)
    for row in pq.read_table(folder / "samples").to_pylist():
        pools[row["step"]].setdefault(row["key"], []).append(row)
    return pools


def learnt_rows(folder):
    """step -> what verl's learner was given, padding left out: prompt -> draw -> row."""
    steps = defaultdict(lambda: defaultdict(dict))
    for line in (folder / "learnt.jsonl").read_text().splitlines():
        row = json.loads(line)
        if not row["name"].startswith("pad"):
            draw = int(row["name"].rsplit("_", 2)[1])
            steps[row["step"]][row["key"]][draw] = row
    return steps


def expected_advantages(config, pools, believed=None, learnt=None):
    """The advantages of a step's rows by the core, from its recorded pools.

    Args:
        config: The run's settings.
        pools: Prompt -> the rows of its pool.
        believed: Prompt -> (α, β), where advantages depend on it.
        learnt: Prompt -> draw -> what the learner was given, where they depend on probabilities.

    Returns:
        Prompt -> draw -> advantage; without the prompts that are left out.
    """
    recipe = step_recipe(config)
    priors = [believed[key] for key in pools] if believed else None
    session = recipe.session(pools, 0, priors=priors)
    for key, rows in pools.items():
        for row in rows:
            logprobs = learnt[key][row["index"]]["logprobs"] if learnt else []
            tokens = range(row["tokens"])
            drawn = SimpleNamespace(tokens=tokens, logprobs=logprobs, truncated=row["truncated"])
            session.pools[key].take(row["reward"], drawn)
    rng = np.random.default_rng(0)
    make = lambda pool: make_group(recipe, pool, rng)  # noqa: E731
    return {
        group.pool.key: {
            pools[group.pool.key][place]["index"]: value
            for place, value in zip(group.members.indices, group.advantages, strict=True)
        }
        for group in make_groups(recipe, list(session.pools.values()), make)[0]
        if not group.dropped
    }


def check_steps(folder, settings, believed=None):
    """All three steps: verl learnt from the groups and advantages of the recorded pools."""
    config = config_of(settings)
    learnt, pools = learnt_rows(folder), recorded_pools(folder)
    assert sorted(learnt) == sorted(pools) == [1, 2, 3]
    for step in pools:
        assert len(pools[step]) == config.prompts.batch_size
        priors = believed and believed[step]
        expected = expected_advantages(
            config, pools[step], priors, learnt[step] if config.step.response_cap else None
        )
        assert sorted(learnt[step]) == sorted(expected)
        for key, values in expected.items():
            found = learnt[step][key]
            assert {i: row["advantage"] for i, row in found.items()} == pytest.approx(values)
            rewards = {row["index"]: row["reward"] for row in pools[step][key]}
            assert {i: row["reward"] for i, row in found.items()} == {i: rewards[i] for i in values}


def check_sampler(folder, settings):
    """The sampler's state is that of one that was asked and told on its own.

    Returns:
        What that one believed of each prompt when it asked for it: step -> prompt -> (α, β).
    """
    config = config_of(settings)
    problems = pq.read_table(folder / "data/train.parquet").to_pylist()
    keys = [row["extra_info"]["key"] for row in problems]
    make = lambda: make_sampler(config, keys, columns_in(problems))  # noqa: E731
    alone, saved, believed = make(), make(), {}
    for step, pools in sorted(recorded_pools(folder).items()):
        asked = alone.ask()
        assert sorted(asked) == sorted(pools)
        believed[step] = dict(zip(asked, alone.pass_rate_priors(asked).tolist(), strict=True))
        told = sorted(asked)
        rewards = [np.array([row["reward"] for row in pools[key]]) for key in told]
        alone.tell(told, correct=[int(r.sum()) for r in rewards], drawn=[len(r) for r in rewards])
        checkpoint = folder / f"checkpoints/global_step_{step}/rollwise"
        assert load_sampler(checkpoint, saved)["step"] == step
        for name, value in alone.state_dict().items():
            np.testing.assert_array_equal(saved.state_dict()[name], value)
    return believed


def metrics_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_reinforce_ada_balanced(tmp_path):
    folder = tmp_path / "ada"
    run(folder, ADA)
    check_steps(folder, ADA)
    lines = metrics_of(folder)
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert all(line["draws_by_round"][0] == 4.0 for line in lines[1:])
    assert [line["step"] for line in lines if "heldout" in line] == [0, 3]
    log = (tmp_path / "ada.log").read_text(errors="replace")
    assert f"rollwise/reward:{lines[3]['reward']}" in log
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "Draws of a prompt, by round" in page


def run_killed(folder, settings, after=2, steps=3, verl=""):
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
    assert [line["step"] for line in metrics_of(folder)] == list(range(steps + 1))


def test_cdas_killed_after_the_second_step_and_resumed(tmp_path):
    folder = tmp_path / "cdas"
    run_killed(folder, CDAS)
    check_steps(folder, CDAS)
    check_sampler(folder, CDAS)


def test_single_responses_killed_after_the_second_step_and_resumed(tmp_path):
    """One response to each prompt, compared with what the sampler believed of it."""
    folder = tmp_path / "single"
    run_killed(folder, SINGLE)
    check_steps(folder, SINGLE, check_sampler(folder, SINGLE))
    lines = metrics_of(folder)[1:]
    assert [line["trained_groups"] for line in lines] == [8, 8, 8]
    assert all(0 < line["capped_responses"] < 8 for line in lines)


def test_both_streamed_on_two_workers_with_uneven_groups(tmp_path):
    """World size 2; groups of all responses, as many as it took, so the ranks' shares differ."""
    folder = tmp_path / "both"
    run(folder, BOTH, workers=2)
    check_steps(folder, BOTH)
    sizes = {len(draws) for step in learnt_rows(folder).values() for draws in step.values()}
    assert len(sizes) > 1
    check_sampler(folder, BOTH)
    assert sum(line["surplus_draws"] for line in metrics_of(folder)[1:]) > 0
    actor = folder / "checkpoints/global_step_3/actor"
    assert len(list(actor.glob("model_world_size_2_rank_*.pt"))) == 2
