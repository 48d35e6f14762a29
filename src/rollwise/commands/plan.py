"""`rollwise plan`: what methods would cost and teach, before anything is trained."""

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from scipy import optimize

from rollwise.commands.method_tables import methods_in_words
from rollwise.commands.plan_tables import in_words, markdown, nodes_table, plan_tables
from rollwise.config import PlanConfig, TrainConfig, is_recorded_by, make_config, make_settings
from rollwise.config.base import setting
from rollwise.engines.recorded import RecordedLengths
from rollwise.engines.simulated import LengthModel, Lengths
from rollwise.errors import ConfigError, RunError
from rollwise.evaluation.cluster import OnNodes
from rollwise.evaluation.lengths import fit_lengths
from rollwise.evaluation.planning import Plan, Prices, as_json, simulate_steps, summarise
from rollwise.files import write_text
from rollwise.records import RunFolder
from rollwise.reports.plan import write_plan_report
from rollwise.sampling.pool import POSITIVE_THRESHOLD
from rollwise.tasks.pass_rates import (
    RatedPrompt,
    read_pass_rates,
    resample_pass_rates,
    spread_pass_rates,
)
from rollwise.tasks.recorded import rated, read_recorded

CALIBRATION_STEPS = 8
"""Steps of a measured run's own settings that its seconds are compared with."""


@dataclass(frozen=True)
class Measured:
    """What runs tell of their prices."""

    lengths: Lengths
    seconds_per_token: float
    seconds_per_busy_slot: float = 0.0


DEFAULTS = Measured(Lengths(median=1, sigma=0.7, longest=1), seconds_per_token=0.02)
"""Prices where nothing is measured; lengths and the longest one are then always given."""


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
    prompts, recorded = _prompts(config)
    measured = None
    if config.prices.measured:
        measured = measure([Path(folder) for folder in config.prices.measured], prompts, recorded)
        console.print(_describe(measured, recorded), highlight=False)
    prices = {
        name: _prices(config, name, method, measured, recorded) for name, method in methods.items()
    }
    cuts = list(_cuts(config, prices, recorded))
    for sentence in (*methods_in_words(methods), *cuts):
        console.print(escape(sentence), highlight=False)
    plans: dict[str, Plan] = {}
    on_nodes: dict[str, list[OnNodes]] = {}
    steps = config.warmup + config.steps
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total} steps"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        for name in methods:
            total = steps * (1 + len(config.prices.nodes))
            task = progress.add_task(escape(name), total=total)
            if not console.is_terminal:
                console.print(f"{escape(name)}: simulating {total} steps")

            def planned(nodes: int, name: str = name, task: TaskID = task) -> Plan:
                slots = prices[name].slots * nodes
                with _named(f"method `{name}`"):
                    found = simulate_steps(
                        methods[name],
                        prompts,
                        dataclasses.replace(prices[name], slots=slots),
                        steps,
                        lambda: progress.advance(task),
                    )
                return summarise(found[config.warmup :])

            plans[name] = planned(1)
            on_nodes[name] = [OnNodes.of(nodes, planned(nodes)) for nodes in config.prices.nodes]
    mean = float(np.mean([prompt.pass_rate for prompt in prompts]))
    console.print(
        f"{len(prompts):,} prompts, mean pass rate {mean:.3f}; means over {config.steps} simulated "
        f"steps after {config.warmup} of warm-up"
    )
    for table in plan_tables(plans, on_nodes):
        console.print(table)
    words = list(in_words(plans))
    for sentence in words:
        console.print(escape(sentence), highlight=False)
    words = [*methods_in_words(methods), *cuts, *words]
    if path is not None:
        RunFolder(path).write_config(config.model_dump(mode="json"))
        figures = as_json(plans)
        for name, found in on_nodes.items():
            figures[name] |= {"nodes": [asdict(each) for each in found]} if found else {}
        write_text(path / "plan.json", json.dumps(figures, indent=2) + "\n")
        write_text(path / "plan.md", markdown(plans, on_nodes, words))
        tables = list(nodes_table(on_nodes))
        report = write_plan_report(path, plans, words, config.steps, config.warmup, tables)
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


def _prompts(config: PlanConfig) -> tuple[list[RatedPrompt], RecordedLengths | None]:
    """Return the prompts that are planned with, and the lengths of their responses if recorded."""
    given, recorded = config.pass_rates, None
    if config.rewards is not None:
        threshold = float(setting(config.base, "grading", "positive_threshold", POSITIVE_THRESHOLD))
        responses = read_recorded(config.rewards)
        read = [rated(prompt, threshold) for prompt in responses]
        if len(responses[0].recorded.tokens):
            recorded = RecordedLengths(
                {prompt.key: prompt.recorded for prompt in responses}, sys.maxsize, threshold
            )
        elif config.prices.median is None and not config.prices.measured:
            raise ConfigError(
                f"{config.rewards} says nothing of lengths: give `prices.median`, the median "
                "length of responses in tokens, or `prices.measured`, the folders of runs"
            )
    elif given.file is not None:
        read = read_pass_rates(given.file)
    else:
        assert given.alpha is not None
        assert given.beta is not None
        return spread_pass_rates(given.alpha, given.beta, given.prompts), None
    if given.resample:
        read = resample_pass_rates(read, np.random.default_rng(config.seed))
    return read, recorded


def _prices(
    config: PlanConfig,
    name: str,
    method: TrainConfig,
    measured: Measured | None,
    recorded: RecordedLengths | None,
) -> Prices:
    """Resolve a method's prices: what is given, was recorded or measured, its settings, defaults.

    Lengths are the recorded ones, unless some of theirs are given.
    """
    given, known = config.prices, measured or DEFAULTS
    longest = given.longest or method.engine.max_new_tokens
    if given.median is not None and given.longest is None and given.median > longest:
        raise ConfigError(
            f"`prices.median` is {given.median:g}, but method `{name}` cuts responses at {longest} "
            "(`engine.max_new_tokens`, whose default depends on `model.path`); set one of them, or "
            "`prices.longest`"
        )
    lengths: LengthModel
    if recorded is not None and given.median is given.sigma is given.incorrect_factor is None:
        lengths = dataclasses.replace(recorded, longest=longest)
    else:
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
        _first(given.seconds_per_busy_slot, known.seconds_per_busy_slot),
    )


def _cuts(
    config: PlanConfig, prices: Mapping[str, Prices], recorded: RecordedLengths | None
) -> Iterator[str]:
    """Warn of methods whose limit cuts responses that were recorded longer."""
    if recorded is None or config.prices.longest is not None:
        return
    lengths = np.concatenate([prompt.tokens for prompt in recorded.prompts.values()])
    for name, price in prices.items():
        longest = price.lengths.longest
        share = float(np.mean(lengths > longest))
        if share and isinstance(price.lengths, RecordedLengths):
            yield (
                f"{name} cuts {100 * share:.1f} % of the recorded responses at {longest} tokens "
                "(`engine.max_new_tokens`, whose default depends on `model.path`): set it in "
                "[base], or set `prices.longest`."
            )


def _first(given: float | None, known: float) -> float:
    return known if given is None else given


def measure(
    paths: Sequence[Path], prompts: Sequence[RatedPrompt], recorded: RecordedLengths | None = None
) -> Measured:
    """Measure prices by the records of runs.

    Lengths are fitted to the responses in their `samples/`. Each run's own settings are
    simulated with one second a token: its steps take S such seconds for T tokens. Its seconds of
    sampling are then a·S + b·T, with a the seconds of a token and b what each busy slot adds. One
    run cannot tell them apart, and b is 0; of several, a and b ≥ 0 fit their seconds a token best.

    Args:
        paths: The runs' folders.
        prompts: What their settings are simulated on.
        recorded: Lengths of the responses to these prompts, if they are known.

    Raises:
        RollwiseError: One is no run, or has drawn nothing; or its settings do not fit the prompts.
    """
    runs = [_read_run(path) for path in paths]
    rows = [row for run in runs for row in run.responses]
    fitted = DEFAULTS.lengths if recorded is not None else _fit(rows, paths)
    known: RecordedLengths | Lengths = fitted if recorded is None else recorded
    ratios, seconds = [], []
    for path, run in zip(paths, runs, strict=True):
        own = dataclasses.replace(known, longest=run.config.engine.max_new_tokens)
        prices = Prices(own, run.config.engine.batch_size, 1.0)
        with _named(f"`prices.measured`, {path}"):
            simulated = simulate_steps(run.config, prompts, prices, CALIBRATION_STEPS)
        ratios.append(sum(s.seconds for s in simulated) / sum(s.tokens for s in simulated))
        seconds.append(run.seconds / run.tokens)
    if len(runs) == 1:
        return Measured(fitted, seconds[0] / ratios[0])
    (per_token, per_slot), _ = optimize.nnls(np.column_stack([ratios, np.ones(len(runs))]), seconds)
    return Measured(fitted, float(per_token), float(per_slot))


@dataclass(frozen=True)
class _Run:
    """The settings of a run, its recorded responses, and what its steps cost."""

    config: TrainConfig
    responses: list[tuple[int, bool, bool]]
    tokens: float
    seconds: float


def _read_run(path: Path) -> _Run:
    folder = RunFolder(path)
    recorded = folder.read_config()
    if not is_recorded_by(TrainConfig, recorded):
        raise RunError(f"{path} is the folder of another command than `rollwise train`")
    config = make_config(recorded)
    threshold = config.grading.positive_threshold
    rows = [
        (row["tokens"], row["truncated"], row["reward"] > threshold)
        for row in folder.read_samples()
    ]
    # The first step also starts the engine.
    steps = [line for line in folder.read_metrics() if line["step"] > 0]
    steps = steps[1:] or steps
    tokens = float(sum(line["tokens"] for line in steps))
    if not tokens:
        raise RunError(f"{path}: the run has drawn nothing yet")
    return _Run(config, rows, tokens, sum(line["seconds"]["sampling"] for line in steps))


def _fit(rows: Sequence[tuple[int, bool, bool]], paths: Sequence[Path]) -> Lengths:
    tokens, truncated, correct = zip(*rows, strict=True) if rows else ((), (), ())
    try:
        return fit_lengths(tokens, truncated, correct)
    except ValueError as error:
        raise RunError(f"{paths[0] / 'samples'}: {error}") from None


def _describe(measured: Measured, recorded: RecordedLengths | None) -> str:
    lengths = measured.lengths
    found = f"measured: {measured.seconds_per_token:.4g} seconds a token"
    if measured.seconds_per_busy_slot:
        found += f", {measured.seconds_per_busy_slot:.4g} more for each busy slot"
    if recorded is not None:
        return f"{found}; lengths are the recorded ones"
    return (
        f"{found}; median {lengths.median:.0f} tokens, sigma {lengths.sigma:.2f}, incorrect "
        f"responses {lengths.incorrect_factor:.2f} times as long"
    )


@contextmanager
def _named(what: str) -> Any:
    """Say in an error of the settings what they are of."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None
