"""The plots of a report, each an SVG to be set into a page."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from rollwise.evaluation.curves import COSTS, Curves
from rollwise.evaluation.planning import Plan
from rollwise.records import Row

EXIT_COLOURS = {"satisfied": "#2a9d8f", "exhausted": "#e76f51", "futile": "#8d99ae"}
FIRST, AFTER = "#e76f51", "#2a9d8f"
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "rollwise",
}


def heldout(lines: Sequence[Row]) -> str:
    """Held-out accuracy with its 95 % band, against steps, draws, tokens and time."""
    evaluated = [line for line in lines if "heldout" in line]
    steps = [line["step"] for line in lines]
    totals = {
        name: np.cumsum([line.get(name, 0) for line in lines]) for name in ("draws", "tokens")
    }
    axes_of_cost: dict[str, Any] = {
        "steps": steps,
        "draws": totals["draws"],
        "tokens": totals["tokens"],
        "minutes": [line["elapsed"] / 60 for line in lines],
    }
    figure, panels = _figure(1, 4, width=11.5)
    for axes, (label, cost) in zip(panels, axes_of_cost.items(), strict=True):
        at = [cost[steps.index(line["step"])] for line in evaluated]
        for name, colour in zip(evaluated[0]["heldout"], (AFTER, "#264653"), strict=True):
            points = [line["heldout"][name] for line in evaluated]
            axes.plot(at, [p["value"] for p in points], ".-", color=colour, label=name)
            band = [p["low"] for p in points], [p["high"] for p in points]
            axes.fill_between(at, *band, color=colour, alpha=0.2, linewidth=0)
        axes.set(xlabel=label, ylim=(0, 1))
        axes.tick_params(axis="x", rotation=30)
    panels[0].set_ylabel("held-out problems")
    panels[0].legend(loc="lower right")
    return _svg(figure, "Held-out accuracy against steps, draws, tokens and minutes")


def accuracy_of_methods(curves: Mapping[str, Curves], target: float) -> str:
    """Held-out accuracy of each method's runs against each cost, with their mean over seeds."""
    figure, panels = _figure(2, 2, width=11.5, height=6.4)
    colours = matplotlib.colormaps["tab10"].colors  # type: ignore[attr-defined]
    for axes, cost in zip(panels, COSTS, strict=True):
        axes.axhline(target, color="#8d99ae", linewidth=1, linestyle=":")
        for number, (name, of_seeds) in enumerate(curves.items()):
            colour = colours[number % len(colours)]
            own = list(of_seeds.values())
            for curve in own:
                axes.plot(curve.costs[cost], curve.accuracy, color=colour, alpha=0.25, linewidth=1)
            until = min(curve.costs[cost][-1] for curve in own)
            grid = np.linspace(0, until, 60)
            mean = np.mean([curve.accuracy_at(cost, grid) for curve in own], axis=0)
            axes.plot(grid, mean, color=colour, linewidth=2, label=name)
        axes.set(xlabel=cost, ylim=(0, None))
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    panels[0].set_ylabel("held-out accuracy")
    panels[2].set_ylabel("held-out accuracy")
    panels[0].legend(loc="lower right")
    return _svg(figure, "Held-out accuracy of each method against steps, draws, tokens and seconds")


def signal_of_methods(plans: Mapping[str, Plan]) -> str:
    """Signal of each method's steps against their tokens and seconds, with standard errors."""
    figure, panels = _figure(1, 2, width=11.5, height=3.6)
    colours = matplotlib.colormaps["tab10"].colors  # type: ignore[attr-defined]
    for axes, cost in zip(panels, ("tokens", "seconds"), strict=True):
        for number, (name, plan) in enumerate(plans.items()):
            at, signal = plan[cost], plan["signal"]
            axes.errorbar(
                at.value,
                signal.value,
                xerr=at.error,
                yerr=signal.error,
                fmt="o",
                color=colours[number % len(colours)],
                label=name,
            )
        axes.set(xlabel=f"{cost} a step", xlim=(0, None), ylim=(0, None))
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    panels[0].set_ylabel("signal a step")
    panels[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _svg(figure, "Signal of each method's steps against their tokens and seconds")


def reward(steps: Sequence[Row]) -> str:
    """Mean reward of each prompt's first draws."""
    return _plot(
        "Reward of the first draws",
        lambda axes: _line(axes, steps, "reward", AFTER),
        ylim=(0, None),
    )


def zero_variance(steps: Sequence[Row]) -> str:
    """Plot the share of zero-variance groups, at the first draws and after adaptive sampling."""

    def draw(axes: Axes) -> None:
        _line(axes, steps, "zero_variance_first", FIRST, "first draws only")
        _line(axes, steps, "zero_variance_after", AFTER, "groups trained on")
        _legend(axes)

    return _plot("Zero-variance groups", draw, ylim=(0, 1))


def draws(steps: Sequence[Row]) -> str:
    """Draws a prompt, and those of them that were surplus (streamed)."""

    def draw(axes: Axes) -> None:
        _line(axes, steps, "draws_per_prompt", AFTER, "all")
        surplus = [{**line, "s": line["surplus_draws"] / line["prompts"]} for line in steps]
        _line(axes, surplus, "s", FIRST, "surplus")
        _legend(axes)

    return _plot("Draws per prompt", draw, ylim=(0, None))


def draws_by_round(steps: Sequence[Row]) -> str:
    """Draws a prompt, by the round they were drawn in."""

    def draw(axes: Axes) -> None:
        rounds_S = np.array([line["draws_by_round"] for line in steps]).T
        labels = [f"round {r + 1}" for r in range(len(rounds_S))]
        colours = matplotlib.colormaps["viridis"](np.linspace(0.15, 0.9, max(1, len(rounds_S))))
        axes.stackplot(_steps(steps), rounds_S, labels=labels, colors=colours)
        _legend(axes)

    return _plot("Draws per prompt, by round", draw, ylim=(0, None))


def exit_reasons(steps: Sequence[Row]) -> str:
    """Share of prompts by the reason their sampling ended."""

    def draw(axes: Axes) -> None:
        shares = [
            [line["exits"][reason] / line["prompts"] for line in steps] for reason in EXIT_COLOURS
        ]
        axes.stackplot(
            _steps(steps), shares, labels=list(EXIT_COLOURS), colors=list(EXIT_COLOURS.values())
        )
        _legend(axes)

    return _plot("Exit reasons", draw, ylim=(0, 1))


def entropy(steps: Sequence[Row]) -> str:
    """Entropy of the policy, in nats a token."""
    return _plot(
        "Entropy (nats a token)",
        lambda axes: _line(axes, steps, "entropy", AFTER),
        ylim=(0, None),
    )


def competence(steps: Sequence[Row]) -> str:
    """The model's competence among the difficulties of the prompts (CDAS)."""

    def draw(axes: Axes) -> None:
        low, middle, high = ([line[f"difficulty_p{q}"] for line in steps] for q in (10, 50, 90))
        axes.fill_between(_steps(steps), low, high, color=FIRST, alpha=0.2, linewidth=0)
        axes.plot(_steps(steps), middle, color=FIRST, label="difficulty: median, 10 to 90 %")
        axes.plot(
            _steps(steps), [line["competence"] for line in steps], color=AFTER, label="competence"
        )
        _legend(axes)

    return _plot("Difficulty of the prompts, competence of the model", draw, ylim=(None, None))


def pass_rate_by_difficulty(steps: Sequence[Row]) -> str:
    """Pass rates against the difficulties that the prompts had before the step (CDAS)."""
    return _beliefs(steps, "pass_rate_by_difficulty", "Pass rate against difficulty", "difficulty")


def pass_rate_by_expected(steps: Sequence[Row]) -> str:
    """Pass rates against those that the prompt sampler expected."""
    name, title = "pass_rate_by_expected", "Pass rate against what the prompt sampler expected"
    return _beliefs(steps, name, title, "expected pass rate", diagonal=True)


def _beliefs(
    steps: Sequence[Row], name: str, title: str, label: str, diagonal: bool = False
) -> str:
    """A point for each eighth of a step's prompts, in three colours from first to last steps."""
    thirds = [third for third in np.array_split(np.array(steps, dtype=object), 3) if len(third)]

    def draw(axes: Axes) -> None:
        if diagonal:
            axes.axline((0, 0), (1, 1), color="#8d99ae", linewidth=1, zorder=0)
        for third, colour in zip(thirds, ("#264653", AFTER, "#e9c46a"), strict=False):
            pairs = np.array([pair for line in third for pair in line[name]]).reshape(-1, 2)
            span = f"steps {third[0]['step']} to {third[-1]['step']}"
            axes.plot(*pairs.T, ".", color=colour, markersize=4, label=span)
        axes.set_ylabel("pass rate")
        _legend(axes)

    return _plot(title, draw, ylim=(-0.02, 1.02), xlabel=label)


def seconds(steps: Sequence[Row]) -> str:
    """Seconds of each step, by phase."""

    def draw(axes: Axes) -> None:
        phases = list(dict.fromkeys(phase for line in steps for phase in line["seconds"]))
        bottom = np.zeros(len(steps))
        for phase in phases:
            spent = np.array([line["seconds"].get(phase, 0.0) for line in steps])
            axes.bar(_steps(steps), spent, bottom=bottom, width=1, label=phase)
            bottom += spent
        _legend(axes)

    return _plot("Seconds a step, by phase", draw, ylim=(0, None))


def pass_and_majority(figures: Mapping[str, Any], ks: Sequence[int]) -> str:
    """pass@k and maj@k against k, each with its 95 % band."""
    names = {"pass": ("at least one correct (pass@k)", AFTER), "maj": ("majority correct", FIRST)}
    return _against_k("Problems solved by k responses", figures, ks, names)


def zero_variance_at_k(figures: Mapping[str, Any], ks: Sequence[int]) -> str:
    """The share of groups of k responses that are all correct, or all wrong.

    Figure 2 of Reinforce-Ada (arXiv 2510.04996).
    """
    names = {"all_correct": ("all correct", AFTER), "all_wrong": ("all wrong", FIRST)}
    return _against_k("Zero-variance groups of k responses", figures, ks, names)


def _against_k(
    title: str,
    figures: Mapping[str, Any],
    ks: Sequence[int],
    names: Mapping[str, tuple[str, str]],
) -> str:
    def draw(axes: Axes) -> None:
        for name, (label, colour) in names.items():
            shown = [k for k in ks if f"{name}@{k}" in figures]
            points = [figures[f"{name}@{k}"] for k in shown]
            if not shown:
                continue
            axes.plot(shown, [p["value"] for p in points], ".-", color=colour, label=label)
            band = [p["low"] for p in points], [p["high"] for p in points]
            axes.fill_between(shown, *band, color=colour, alpha=0.2, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(ks), [str(k) for k in ks])
        axes.minorticks_off()
        _legend(axes)

    return _plot(title, draw, ylim=(-0.02, 1.02), xlabel="responses, k")


def _steps(lines: Sequence[Row]) -> list[int]:
    return [line["step"] for line in lines]


def _line(axes: Axes, lines: Sequence[Row], name: str, colour: str, label: str = "") -> None:
    """Draw a figure of each step faintly, and its moving mean over ten steps."""
    values = np.array([line[name] for line in lines], dtype=float)
    width = min(10, len(values))
    window = np.ones(width)
    mean = (
        np.convolve(values, window)[: len(values)]
        / np.convolve(np.ones(len(values)), window)[: len(values)]
    )
    axes.plot(_steps(lines), values, color=colour, alpha=0.3, linewidth=1)
    axes.plot(_steps(lines), mean, color=colour, label=label)


def _legend(axes: Axes) -> None:
    """Set the legend between a plot and its title, where it hides no data."""
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.98), ncols=4, handlelength=1.2)


def _plot(
    title: str,
    draw: Callable[[Axes], None],
    ylim: tuple[float | None, float | None],
    xlabel: str = "step",
) -> str:
    figure, panels = _figure(1, 1, width=5.6)
    with matplotlib.rc_context(STYLE):
        draw(panels[0])
    panels[0].set_title(title, loc="left", pad=20)
    panels[0].set(xlabel=xlabel, ylim=ylim)
    if xlabel == "step":
        panels[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    return _svg(figure, title)


def _figure(
    rows: int, columns: int, width: float, height: float = 2.9
) -> tuple[Figure, list[Axes]]:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
    return figure, list(panels.flat)


def _svg(figure: Figure, title: str) -> str:
    file = io.StringIO()
    with matplotlib.rc_context(STYLE):
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None, "Title": title})
    text = file.getvalue()
    return text[text.index("<svg") :]
