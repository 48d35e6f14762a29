"""`rollwise compare --rewards`: what methods do with recorded rewards, without a model."""

import csv
import io
import json
import logging
from collections.abc import Iterator, Mapping
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
    number,
    terminal_table,
    zero_variance,
)
from rollwise.config import CompareConfig, make_config
from rollwise.errors import ConfigError
from rollwise.evaluation.replaying import Figures, ReplayedMethod, compare_replays, replay
from rollwise.files import write_text
from rollwise.tasks.recorded import RecordedPrompt, read_recorded

Replayed = Mapping[str, ReplayedMethod]


def compare_rewards(config: CompareConfig, rewards: str, path: Path, console: Console) -> bool:
    """Replay recorded rewards by each method, compare, show, and write the tables; returns True.

    Raises:
        RollwiseError: The rewards cannot be read, or a method's settings do not fit them.
    """
    prompts = read_recorded(rewards)
    jobs = [(m, seed) for m in config.compared for seed in range(config.seeds_of(m))]
    figures: dict[str, dict[int, Figures]] = {method: {} for method in config.compared}
    log = logging.getLogger("rollwise")
    before = log.level
    log.setLevel(logging.ERROR)  # what a step warns of is in the figures
    try:
        for method, seed in track(jobs, "Replaying", console=console, transient=True):
            figures[method][seed] = _replay(config, method, seed, prompts)
    finally:
        log.setLevel(before)
    baseline = config.baseline or config.compared[0]
    methods = compare_replays(figures, baseline)
    has_lengths = bool(len(prompts[0].recorded.tokens))
    console.print(_described(prompts), highlight=False)
    for title, header, rows in _tables(methods, baseline, has_lengths, "\n"):
        console.print(terminal_table(title, header, rows))
    for sentence in in_words(methods, baseline, has_lengths):
        console.print(escape(sentence), highlight=False)
    _write(path, methods, baseline, has_lengths)
    console.print(f"tables: {escape(str(path / 'comparison.md'))}")
    return True


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
            yield f"{name}: one resampling cannot show a difference to {baseline}."
        elif method.differences is not None:
            base = methods[baseline].means["signal_per_1000_tokens"].value
            found = method.means["signal_per_1000_tokens"].value
            more = f"{found / base:.2f} times" if base > 0 else "not 0, as is"
            words = {
                "more": f"{more} the signal of {baseline} for {price}.",
                "less": f"{more} the signal of {baseline} for {price}.",
                "open": f"no difference to {baseline} in signal for {price} is shown.",
            }
            yield f"{name}: {words[method.verdict]}"
        if out := method.means["ran_out"].value:
            yield (
                f"{name}: {100 * out:.1f} % of prompts had too few recorded responses; what it "
                "would draw beyond them is not in these figures."
            )


def _described(prompts: list[RecordedPrompt]) -> str:
    counts = [len(prompt.recorded) for prompt in prompts]
    least, most = min(counts), max(counts)
    each = str(least) if least == most else f"{least} to {most}"
    mean = np.mean([prompt.recorded.rewards.mean() for prompt in prompts])
    return (
        f"{len(prompts):,} prompts of {each} recorded responses, mean reward {mean:.3f}; means "
        "over steps, and 95 % intervals over resamplings of these responses"
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


def _write(path: Path, methods: Replayed, baseline: str, has_lengths: bool) -> None:
    """Write `comparison.md`, `comparison.json`, and `replays.csv` with a line for each replay."""
    tables = [markdown_table(*table) for table in _tables(methods, baseline, has_lengths, " ")]
    words = list(in_words(methods, baseline, has_lengths))
    write_text(path / "comparison.md", "\n\n".join([*tables, *words]) + "\n")
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
    writer.writerow(["method", "seed", *names])
    for name, method in methods.items():
        for seed, figures in method.figures.items():
            writer.writerow([name, seed, *(figures.get(figure, "") for figure in names)])
    write_text(path / "replays.csv", table.getvalue())
