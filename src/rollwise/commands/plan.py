"""`rollwise plan`: what methods would cost and teach, before anything is trained."""

import json
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from rollwise.commands.plan_tables import in_words, markdown, plan_tables
from rollwise.config import PlanConfig, TrainConfig, is_recorded_by, make_config, make_settings
from rollwise.engines.simulated import Lengths
from rollwise.errors import ConfigError, RunError
from rollwise.evaluation.lengths import fit_lengths
from rollwise.evaluation.planning import Plan, Prices, as_json, simulate_steps, summarise
from rollwise.files import write_text
from rollwise.records import RunFolder
from rollwise.reports.plan import write_plan_report
from rollwise.tasks.pass_rates import (
    RatedPrompt,
    read_pass_rates,
    resample_pass_rates,
    spread_pass_rates,
)

CALIBRATION_STEPS = 8
"""Steps of a measured run's own settings that its seconds are compared with."""


@dataclass(frozen=True)
class Measured:
    """What a run tells of its prices."""

    lengths: Lengths
    seconds_per_token: float


DEFAULTS = Measured(Lengths(median=1, sigma=0.7, longest=1), seconds_per_token=0.02)
"""Prices where nothing is measured; the median and the longest length are then always given."""


def plan(layers: Sequence[Mapping[str, Any]], path: Path | None, console: Console) -> None:
    """Predict, show, and write tables and a report into the folder `path`, if there is one.

    Args:
        layers: Settings; later layers win.
        path: The folder; what an earlier plan wrote there is replaced.
        console: Where to show progress and results.

    Raises:
        RollwiseError: Says what is wrong, and what to do.
    """
    config = make_settings(PlanConfig, *layers)
    if path is not None:
        _check_folder(path)
    methods = {name: config.method(name) for name in config.methods}
    prompts = _pass_rates(config)
    measured = None
    if config.prices.measured is not None:
        measured = measure(Path(config.prices.measured), prompts)
        console.print(_describe(measured), highlight=False)
    prices = {name: _prices(config, name, method, measured) for name, method in methods.items()}
    plans: dict[str, Plan] = {}
    with Progress(console=console, transient=True) as progress:
        for name, method in methods.items():
            task = progress.add_task(escape(name), total=config.warmup + config.steps)
            with _named(f"method `{name}`"):
                found = simulate_steps(
                    method,
                    prompts,
                    prices[name],
                    config.warmup + config.steps,
                    lambda task=task: progress.advance(task),  # type: ignore[misc]
                )
            plans[name] = summarise(found[config.warmup :])
    mean = float(np.mean([prompt.pass_rate for prompt in prompts]))
    console.print(
        f"{len(prompts):,} prompts, mean pass rate {mean:.3f}; means over {config.steps} simulated "
        f"steps after {config.warmup} of warm-up"
    )
    for table in plan_tables(plans):
        console.print(table)
    for sentence in in_words(plans):
        console.print(escape(sentence), highlight=False)
    if path is not None:
        RunFolder(path).write_config(config.model_dump(mode="json"))
        write_text(path / "plan.json", json.dumps(as_json(plans), indent=2) + "\n")
        write_text(path / "plan.md", markdown(plans))
        report = write_plan_report(path, plans, list(in_words(plans)), config.steps, config.warmup)
        console.print(f"report: {escape(str(report))}")


def _check_folder(path: Path) -> None:
    """Refuse a folder that holds anything but a plan."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / "config.json").exists():
        raise RunError(f"{path}: it holds something else; give another --output")
    recorded = RunFolder(path).read_config()
    if "pass_rates" not in recorded or not is_recorded_by(PlanConfig, recorded):
        raise RunError(f"{path} is the folder of another command; give another --output")


def _pass_rates(config: PlanConfig) -> list[RatedPrompt]:
    given = config.pass_rates
    if given.file is None:
        assert given.alpha is not None
        assert given.beta is not None
        return spread_pass_rates(given.alpha, given.beta, given.prompts)
    read = read_pass_rates(given.file)
    return resample_pass_rates(read, np.random.default_rng(config.seed)) if given.resample else read


def _prices(
    config: PlanConfig, name: str, method: TrainConfig, measured: Measured | None
) -> Prices:
    """Resolve a method's prices: what is given, what was measured, its settings, the defaults."""
    given, known = config.prices, measured or DEFAULTS
    longest = given.longest or method.engine.max_new_tokens
    if given.median is not None and given.longest is None and given.median > longest:
        raise ConfigError(
            f"`prices.median` is {given.median:g}, but method `{name}` cuts responses at {longest} "
            "(`engine.max_new_tokens`, whose default depends on `model.path`); set one of them, or "
            "`prices.longest`"
        )
    lengths = Lengths(
        median=_first(given.median, known.lengths.median),
        sigma=_first(given.sigma, known.lengths.sigma),
        longest=longest,
        incorrect_factor=_first(given.incorrect_factor, known.lengths.incorrect_factor),
    )
    return Prices(
        lengths,
        given.slots or method.engine.batch_size,
        _first(given.seconds_per_token, known.seconds_per_token),
        given.prefill,
    )


def _first(given: float | None, known: float) -> float:
    return known if given is None else given


def measure(path: Path, prompts: Sequence[RatedPrompt]) -> Measured:
    """Measure prices by the records of a run.

    Lengths are fitted to the responses in its `samples.parquet`. Its seconds of sampling are
    compared with those of its own settings, simulated with one second a token.

    Args:
        path: The run's folder.
        prompts: What its settings are simulated on.

    Raises:
        RollwiseError: It is no run, or has drawn nothing; or its settings do not fit the prompts.
    """
    folder = RunFolder(path)
    recorded = folder.read_config()
    if not is_recorded_by(TrainConfig, recorded):
        raise RunError(f"{path} is the folder of another command than `rollwise train`")
    config = make_config(recorded)
    rows = folder.read_samples()
    threshold = config.grading.positive_threshold
    try:
        lengths = fit_lengths(
            [row["tokens"] for row in rows],
            [row["truncated"] for row in rows],
            [row["reward"] > threshold for row in rows],
        )
    except ValueError as error:
        raise RunError(f"{path / 'samples.parquet'}: {error}") from None
    steps = [line for line in folder.read_metrics() if line["step"] > 0]
    tokens = sum(line["tokens"] for line in steps)
    if not tokens:
        raise RunError(f"{path}: the run has drawn nothing yet")
    seconds = sum(line["seconds"]["sampling"] for line in steps)
    cut = Lengths(
        lengths.median, lengths.sigma, config.engine.max_new_tokens, lengths.incorrect_factor
    )
    with _named(f"`prices.measured`, {path}"):
        simulated = simulate_steps(
            config, prompts, Prices(cut, config.engine.batch_size, 1.0), CALIBRATION_STEPS
        )
    seconds_at_1 = sum(step.seconds for step in simulated) / sum(s.tokens for s in simulated)
    return Measured(lengths, seconds / tokens / seconds_at_1)


def _describe(measured: Measured) -> str:
    lengths = measured.lengths
    return (
        f"measured: median {lengths.median:.0f} tokens, sigma {lengths.sigma:.2f}, incorrect "
        f"responses {lengths.incorrect_factor:.2f} times as long, "
        f"{measured.seconds_per_token:.4g} seconds a token and slot"
    )


@contextmanager
def _named(what: str) -> Any:
    """Say in an error of the settings what they are of."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None
