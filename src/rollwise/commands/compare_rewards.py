"""`rollwise compare --rewards`: what methods do with recorded rewards, without a model."""

import csv
import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from rollwise.commands.method_tables import (
    Cells,
    interval,
    markdown_table,
    methods_in_words,
    number,
    terminal_table,
    zero_variance,
)
from rollwise.config import CompareConfig, make_config
from rollwise.errors import ConfigError
from rollwise.evaluation.replaying import (
    Figures,
    OfSeeds,
    ReplayedMethod,
    Replays,
    bootstrap_prompts,
    compare_replays,
    replay,
)
from rollwise.files import write_text
from rollwise.reports.replay import write_replay_report
from rollwise.tasks.recorded import RecordedPrompt, read_recorded

Replayed = Mapping[str, ReplayedMethod]


def compare_rewards(config: CompareConfig, rewards: str, path: Path, console: Console) -> bool:
    """Replay recorded rewards by each method, compare, show, and write the tables; returns True.

    Raises:
        RollwiseError: The rewards cannot be read, or a method's settings do not fit them.
    """
    prompts = read_recorded(rewards)
    methods = _replayed(config, prompts, console)
    baseline = config.baseline or config.compared[0]
    has_lengths = bool(len(prompts[0].recorded.tokens))
    described = _described(prompts)
    console.print(described, highlight=False)
    for title, header, rows in _tables(methods, baseline, has_lengths, "\n"):
        console.print(terminal_table(title, header, rows))
    settings = {name: make_config(config.run_settings(name, 0, {})) for name in methods}
    words = [*methods_in_words(settings), *in_words(methods, baseline, has_lengths)]
    for sentence in words:
        console.print(escape(sentence), highlight=False)
    tables = list(_tables(methods, baseline, has_lengths, " "))
    text = "\n\n".join([described, *(markdown_table(*table) for table in tables), *words])
    write_text(path / "comparison.md", text + "\n")
    _write_figures(path, methods, baseline)
    report = write_replay_report(path, methods, [described, *words], tables, has_lengths)
    console.print(f"report: {escape(str(report))}")
    return True


def _replayed(
    config: CompareConfig, prompts: list[RecordedPrompt], console: Console
) -> dict[str, ReplayedMethod]:
    """Replay each method as often as it has seeds, on the prompts and on bootstrapped ones."""
    log = logging.getLogger("rollwise")
    before = log.level
    log.setLevel(logging.ERROR)  # what a step warns of is in the figures
    found: dict[str, tuple[dict[int, Figures], dict[int, Figures]]] = {
        method: ({}, {}) for method in config.compared
    }
    jobs = [(m, seed) for m in config.compared for seed in range(config.seeds_of(m))]
    try:
        for method, seed in track(jobs, "Replaying", console=console, transient=True):
            others = bootstrap_prompts(prompts, seed)
            for of_seeds, sample in zip(found[method], (prompts, others), strict=True):
                of_seeds[seed] = _replay(config, method, seed, sample)
    finally:
        log.setLevel(before)
    replays = {method: Replays(*of_seeds) for method, of_seeds in found.items()}
    return compare_replays(replays, config.baseline or config.compared[0])


def _replay(
    config: CompareConfig, method: str, seed: int, prompts: list[RecordedPrompt]
) -> Figures:
    given = make_config(config.run_settings(method, seed, {}))
    how = config.replay
    try:
        return replay(given, prompts, config.steps, how.order, how.when_out)
    except ConfigError as error:
        raise ConfigError(f"method `{method}`: {error}") from None


def in_words(methods: Replayed, baseline: str, has_lengths: bool) -> Iterator[str]:
    """Say of each method whether it has more signal for its cost, and what ran out."""
    price = "1,000 tokens" if has_lengths else "1,000 draws"
    for name, method in methods.items():
        if method.differences is None and name != baseline:
            yield f"{name}: one replay cannot show a difference to {baseline}."
        elif method.differences is not None:
            base = methods[baseline].means["signal_per_1000_tokens"].value
            found = method.means["signal_per_1000_tokens"].value
            more = f"{found / base:.2f} times" if base > 0 else "not 0, as is"
            words = {
                "more": f"{more} the signal of {baseline} for {price}.",
                "less": f"{more} the signal of {baseline} for {price}.",
                "not shown": f"no difference to {baseline} in signal for {price} is shown.",
            }
            yield f"{name}: {words[method.verdict]}"
        if out := method.means["ran_out"].value:
            yield (
                f"{name}: {100 * out:.1f} % of prompts had too few recorded responses; what it "
                "would draw beyond them is not in these figures."
            )


def _described(prompts: Sequence[RecordedPrompt]) -> str:
    counts = [len(prompt.recorded) for prompt in prompts]
    least, most = min(counts), max(counts)
    each = str(least) if least == most else f"{least} to {most}"
    mean = np.mean([prompt.recorded.rewards.mean() for prompt in prompts])
    return (
        f"{len(prompts):,} prompts of {each} recorded responses, mean reward {mean:.3f}; means "
        "over steps and orders of the responses. 95 % intervals are of other prompts like these: "
        "by bootstrap over prompts, each with its responses."
    )


def _tables(
    methods: Replayed, baseline: str, has_lengths: bool, separator: str
) -> Iterator[tuple[str, list[str], Cells]]:
    """Yield title, header and rows of each table."""
    columns = ["prompts", "draws", *(["tokens"] if has_lengths else [])]
    yield (
        "What a step costs",
        ["method", *columns, "zero variance", "trained on", "ran out"],
        [
            [
                name,
                *(number(method.means[figure].value) for figure in columns),
                zero_variance(method.means),
                number(method.means["trained"].value),
                f"{100 * method.means['ran_out'].value:.0f} %",
            ]
            for name, method in methods.items()
        ],
    )
    price = "per 1,000 tokens" if has_lengths else "per 1,000 draws"
    yield (
        f"Signal, and its difference to {baseline}",
        ["method", "a step", price, "difference", "verdict"],
        [
            [
                name,
                interval(method.means["signal"], separator),
                interval(method.means["signal_per_1000_tokens"], separator),
                ""
                if method.differences is None
                else interval(method.differences["signal_per_1000_tokens"], separator, sign="+"),
                method.verdict,
            ]
            for name, method in methods.items()
        ],
    )


def _write_figures(path: Path, methods: Replayed, baseline: str) -> None:
    """Write `comparison.json`, and `replays.csv` with a line for each replay."""
    content: dict[str, Any] = {"baseline": baseline, "methods": {}}
    for name, method in methods.items():
        content["methods"][name] = {
            "means": {figure: asdict(mean) for figure, mean in method.means.items()},
            "differences": {n: asdict(each) for n, each in (method.differences or {}).items()},
            "verdict": method.verdict,
        }
    write_text(path / "comparison.json", json.dumps(content, indent=2) + "\n")
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    names = list(dict.fromkeys(name for method in methods.values() for name in method.means))
    writer.writerow(["method", "seed", "sample", *names])
    for name, method in methods.items():
        of_kinds: dict[str, OfSeeds] = {
            "recorded": method.replays.recorded,
            "bootstrap": method.replays.bootstrapped,
        }
        for kind, of_seeds in of_kinds.items():
            for seed, figures in of_seeds.items():
                values = [figures.get(figure, "") for figure in names]
                writer.writerow([name, seed, kind, *values])
    write_text(path / "replays.csv", table.getvalue())
