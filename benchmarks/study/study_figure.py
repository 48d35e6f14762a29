"""Draw the study's figures: held-out accuracy against tokens.

    python benchmarks/study/study_figure.py    # writes docs/images/accuracy.svg and study.svg

The first has four methods on one problem set, the second all methods on all main sets. Both show
what `python benchmarks/study/study.py compare` has recorded. Lines are interquartile means over
seeds, bands reach from the lowest seed to the highest.
"""

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from study import CHOSEN, DEFAULT, MAIN_SETS, METHODS, curves_of

from rollwise.statistics.curves import Curve, interquartile_mean

sys.path.append(str(Path(__file__).parents[1]))

from figures import COLORS, IMAGES, svg

Floats = NDArray[np.float64]
FIRST = {
    DEFAULT: "single (default)",
    "SPO": "SPO",
    "GRPO n=4": "GRPO, n = 4",
    "Reinforce-Ada-balance": "Reinforce-Ada",
}
"""The methods of the first figure, and their labels."""

LABELS = FIRST | {"batch's mean": "REINFORCE++ (batch's mean)"}
COLORED = dict(zip(LABELS, COLORS, strict=False))
"""The methods of the second figure that can be told apart; all others are gray."""

GRAY = "#b4b8bd"


def draw(axes: Axes, curves: list[Curve], color: str, width: float = 2.2) -> tuple[float, float]:
    """Draw the middle of a method's seeds and their range; return where the line ends."""
    end = min(curve.costs["tokens"][-1] for curve in curves)
    tokens_T = np.linspace(0, end, 41)
    runs_ST = [np.interp(tokens_T, c.costs["tokens"], c.accuracy) for c in curves]
    middle_T = interquartile_mean(np.transpose(runs_ST))
    axes.plot(tokens_T / 1e6, middle_T, color=color, linewidth=width)
    if color != GRAY:
        low, high = np.min(runs_ST, axis=0), np.max(runs_ST, axis=0)
        axes.fill_between(tokens_T / 1e6, low, high, color=color, alpha=0.14, linewidth=0)
    return float(tokens_T[-1] / 1e6), float(middle_T[-1])


def draw_first() -> None:
    """Draw four methods on one problem set, labeled at the ends of their lines."""
    problems = MAIN_SETS[0]
    curves = curves_of(problems)
    title = f"Held-out accuracy against response tokens on sums of {problems}, four methods"
    with svg(IMAGES / "accuracy.svg", title, (4.8, 3.5)) as figure:
        axes = figure.subplots()
        above = np.inf
        for method, label in FIRST.items():
            x, y = draw(axes, curves[method], COLORED[method])
            above = min(y, above - 0.045)  # the labels of neighbors do not touch
            text = f"{y:.2f} {label}"
            axes.text(x + 0.012, above, text, color=COLORED[method], va="center", weight="bold")
        axes.set(xlim=(0, 0.52), xlabel="response tokens (M)", ylabel="held-out accuracy")
        axes.set_title(f"Made-up sums of {problems}")


def draw_all() -> None:
    """Draw all methods that are recorded on all main sets, a panel for each set."""
    recorded = {problems: curves_of(problems) for problems in MAIN_SETS}
    chosen = json.loads(CHOSEN.read_text(encoding="utf-8"))
    names = [name for name in METHODS["methods"] if name in chosen]
    names = [name for name in names if all(name in methods for methods in recorded.values())]
    title = "Held-out accuracy against response tokens, by method and problem set"
    with svg(IMAGES / "study.svg", title, (9.6, 4.0)) as figure:
        panels = figure.subplots(1, len(recorded), sharey=True, squeeze=False)[0]
        for axes, (problems, methods) in zip(panels, recorded.items(), strict=True):
            for name in names:
                if name not in COLORED:
                    draw(axes, methods[name], GRAY, width=1)
            for name, color in COLORED.items():
                draw(axes, methods[name], color)
            axes.set_title(problems)
            axes.set_xlabel("response tokens (M)")
        panels[0].set_ylabel("held-out avg@4")
        handles = [axes.plot([], [], color=color)[0] for color in (*COLORED.values(), GRAY)]
        labels = [*LABELS.values(), f"{len(names) - len(COLORED)} others"]
        figure.legend(handles, labels, loc="outside lower center", ncols=3)


if __name__ == "__main__":
    draw_first()
    draw_all()
