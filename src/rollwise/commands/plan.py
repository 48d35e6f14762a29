"""What methods cost, and their signal, without a model: `rollwise plan`, `compare --rewards`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rollwise.commands.folder import resolve, seal, write_settings
from rollwise.commands.show import methods_in_words, progress, say, show, write_figures
from rollwise.config import CompareConfig, PlanConfig, make_settings
from rollwise.records import RunFolder
from rollwise.simulate.planning import plan_method, prices_of, read_prompts
from rollwise.simulate.recorded import read_recorded
from rollwise.simulate.replaying import ReplayedMethod, replay_methods
from rollwise.simulate.tables import plan_tables, recorded_in_words, replay_in_words, replay_tables

SIGNAL = (
    "Signal is the square of (movement of a step along the gradient of the expected reward / its "
    "noise). It has not been shown to predict what training gains: compare methods by training "
    "them (`rollwise compare`)."
)


def plan(layers: Sequence[Mapping[str, Any]], path: Path | None, console: Console) -> None:
    """Predict and show; write tables into `path`, if any, over those of an earlier plan."""
    if path is None:
        config = make_settings(PlanConfig, *layers)
    else:
        config = resolve(PlanConfig, layers, path, resume=False)
    methods = {name: config.method(name) for name in config.methods}
    prompts, recorded = read_prompts(config)
    prices = {name: prices_of(config, name, own, recorded) for name, own in methods.items()}
    given = [*methods_in_words(methods)]
    say(console, given)
    plans, steps = {}, config.warmup + config.steps
    for name in methods:
        if not console.is_terminal:
            say(console, [f"{name}: simulating {steps} steps"])
        with progress(console, name, steps) as advance:
            plans[name] = plan_method(config, name, prompts, prices[name], advance)
    mean = float(np.mean([prompt.pass_rate for prompt in prompts]))
    console.print(
        f"{len(prompts):,} prompts, mean pass rate {mean:.3f}; means over {config.steps} simulated "
        f"steps after {config.warmup} of warm-up"
    )
    tables = plan_tables(plans)
    show(console, tables)
    say(console, [SIGNAL])
    if path is None:
        return
    RunFolder(path).write_config(asdict(config))
    about = (
        f"Means over {config.steps} simulated steps, after {config.warmup} of warm-up; ± is the "
        "standard error over steps."
    )
    write_figures(path / "plan", plans, tables, [about, *given, SIGNAL])
    say(console, [f"figures: {path / 'plan.md'}"])


def compare_rewards(config: CompareConfig, rewards: str, path: Path, console: Console) -> None:
    """Replay recorded rewards by each method, compare, show, and write the tables."""
    prompts, replays = read_recorded(rewards), sum(map(config.seeds_of, config.compared))
    with progress(console, "replaying", replays) as advance:
        methods = replay_methods(config, prompts, advance)
    baseline = config.baseline or config.compared[0]
    has_lengths = bool(len(prompts[0].recorded.tokens))
    described = recorded_in_words(prompts)
    tables = replay_tables(methods, baseline, has_lengths)
    found = replay_in_words(methods, baseline, has_lengths)
    words = [*methods_in_words(config.each()), *found, SIGNAL]
    say(console, [described])
    show(console, tables)
    say(console, words)
    write_settings(path, config)
    figures = {"baseline": baseline, "methods": {n: _figures(m) for n, m in methods.items()}}
    write_figures(path / "comparison", figures, tables, words, [described])
    seal(path)
    say(console, [f"figures: {path / 'comparison.md'}"])


def _figures(method: ReplayedMethod) -> dict[str, Any]:
    return {
        "means": method.means,
        "differences": method.differences or {},
        "verdict": method.verdict,
        "replays": {
            "recorded": dict(enumerate(method.replays[0])),
            "bootstrap": dict(enumerate(method.replays[1])),
        },
    }
