"""`rollwise compare --rewards`: what methods do with recorded rewards, without a model."""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from rollwise.commands.folder import write_settings
from rollwise.commands.show import methods_in_words, progress, say, show, write_csv, write_figures
from rollwise.config import CompareConfig, make_config
from rollwise.records import RunFolder
from rollwise.records.final import seal
from rollwise.reports.facts import command
from rollwise.reports.methods import write_simulation_report
from rollwise.simulate.recorded import RecordedPrompt, read_recorded
from rollwise.simulate.replaying import ReplayedMethod, replay_methods
from rollwise.simulate.tables import recorded_in_words, replay_in_words, replay_tables


def compare_rewards(config: CompareConfig, rewards: str, path: Path, console: Console) -> None:
    """Replay recorded rewards by each method, compare, show, and write the tables.

    Raises:
        RollwiseError: The rewards cannot be read, or a method's settings do not fit them.
    """
    prompts = read_recorded(rewards)
    methods = _replayed(config, prompts, console)
    baseline = config.baseline or config.compared[0]
    has_lengths = bool(len(prompts[0].recorded.tokens))
    described = recorded_in_words(prompts)
    tables = replay_tables(methods, baseline, has_lengths)
    settings = {name: make_config(config.run_settings(name, 0, {})) for name in methods}
    words = [*methods_in_words(settings), *replay_in_words(methods, baseline, has_lengths)]
    say(console, [described])
    show(console, tables)
    say(console, words)
    write_settings(path, config)
    figures = {"baseline": baseline, "methods": {n: _figures(m) for n, m in methods.items()}}
    write_figures(path / "comparison", figures, tables, words, [described])
    _write_replays(path / "replays.csv", methods)
    seal(RunFolder(path))
    report = write_simulation_report(
        path,
        {name: method.means for name, method in methods.items()},
        ("tokens", "draws") if has_lengths else ("draws",),
        {"command": command("compare", CompareConfig, config.model_dump(mode="json"))},
        [described, *words],
        tables,
    )
    say(console, [f"report: {report}"])


def _replayed(
    config: CompareConfig, prompts: list[RecordedPrompt], console: Console
) -> dict[str, ReplayedMethod]:
    log = logging.getLogger("rollwise")
    before = log.level
    log.setLevel(logging.ERROR)  # what a step warns of is in the figures
    try:
        with progress(console, "replaying", sum(map(config.seeds_of, config.compared))) as advance:
            return replay_methods(config, prompts, advance)
    finally:
        log.setLevel(before)


def _figures(method: ReplayedMethod) -> dict[str, Any]:
    return {
        "means": {figure: asdict(mean) for figure, mean in method.means.items()},
        "differences": {name: asdict(each) for name, each in (method.differences or {}).items()},
        "verdict": method.verdict,
    }


def _write_replays(path: Path, methods: Mapping[str, ReplayedMethod]) -> None:
    """Write a line for each replay."""
    names = list(dict.fromkeys(name for method in methods.values() for name in method.means))
    rows = []
    for name, method in methods.items():
        samples = {"recorded": method.replays.recorded, "bootstrap": method.replays.bootstrapped}
        for kind, of_seeds in samples.items():
            for seed, figures in of_seeds.items():
                rows.append([name, seed, kind, *(figures.get(each, "") for each in names)])
    write_csv(path, ["method", "seed", "sample", *names], rows)
