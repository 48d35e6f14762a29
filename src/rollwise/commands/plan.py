"""`rollwise plan`: what methods would cost and teach, before anything is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rollwise.commands.folder import settle
from rollwise.commands.show import methods_in_words, progress, say, show, write_figures
from rollwise.config import PlanConfig, make_settings
from rollwise.records import RunFolder
from rollwise.reports.methods import write_simulation_report
from rollwise.simulate.planning import cuts_in_words, plan_method, prices_of, read_prompts
from rollwise.simulate.tables import plan_tables

SIGNAL = (
    "Signal is (how far a step moves along the gradient of the expected reward / its noise)². "
    "Whether it predicts what training gains has not been shown: compare methods by training them "
    "(`rollwise compare`)."
)


def plan(layers: Sequence[Mapping[str, Any]], path: Path | None, console: Console) -> None:
    """Predict, show, and write tables and a report into the folder `path`, if there is one.

    What an earlier plan wrote there is replaced.

    Raises:
        RollwiseError: Says what is wrong, and what to do.
    """
    if path is None:
        config = make_settings(PlanConfig, *layers)
    else:
        config = settle(PlanConfig, layers, path, resume=False)
    methods = {name: config.method(name) for name in config.methods}
    prompts, recorded = read_prompts(config)
    prices = {name: prices_of(config, name, own, recorded) for name, own in methods.items()}
    given = [*methods_in_words(methods), *cuts_in_words(config, prices)]
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
    RunFolder(path).write_config(config.model_dump(mode="json"))
    figures = {
        n: {figure: asdict(mean) for figure, mean in own.items()} for n, own in plans.items()
    }
    write_figures(path / "plan", figures, tables, [*given, SIGNAL])
    bars = {name: {figure: mean.bar for figure, mean in own.items()} for name, own in plans.items()}
    about = (
        f"means over {config.steps} simulated steps, after {config.warmup} of warm-up; ± is the "
        "standard error over steps"
    )
    write_simulation_report(path, bars, ("tokens", "seconds"), {"figures": about}, given, tables)
    say(console, [f"report: {path / 'report.html'}"])
