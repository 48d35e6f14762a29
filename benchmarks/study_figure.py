"""Draw the study's figure: held-out accuracy against tokens, a panel for each problem set.

    python benchmarks/study_figure.py        # writes docs/images/study.svg

It shows what `python benchmarks/study.py compare` has recorded. Lines are interquartile means
over seeds, bands reach from the lowest seed to the highest.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray
from study import CHOSEN, DEFAULT, MAIN_SETS, METHODS, STUDY, curves_of, slug

from rollwise.statistics.curves import Curve, interquartile_mean

Floats = NDArray[np.float64]
IMAGES = Path(__file__).parents[1] / "docs/images"
TITLE = "Held-out accuracy against response tokens, by method and problem set"
COLORS = (
    "#000000",
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#aa4499",
    "#b59f00",
    "#56b4e9",
    "#e69f00",
    "#8d99ae",
)
DASHES = ("-", "--", ":")
"""One for all methods until the colors are used up."""
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": ["sans-serif"],
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "svg.fonttype": "none",
    "svg.hashsalt": "rollwise",
}


def draw(
    axes: Axes, methods: Mapping[str, list[Curve]], looks: Mapping[str, tuple[str, str]]
) -> None:
    """Draw the middle of each method's seeds and their range, on a common axis of tokens."""
    for method, curves in methods.items():
        color, dashes = looks[method]
        end = min(curve.costs["tokens"][-1] for curve in curves)
        tokens_T = np.linspace(0, end, 41)
        runs_ST = [np.interp(tokens_T, c.costs["tokens"], c.accuracy) for c in curves]
        width = 3.0 if method == DEFAULT else 1.6
        middle_T = interquartile_mean(np.transpose(runs_ST))
        axes.plot(tokens_T / 1e6, middle_T, dashes, color=color, label=method, linewidth=width)
        low, high = np.min(runs_ST, axis=0), np.max(runs_ST, axis=0)
        axes.fill_between(tokens_T / 1e6, low, high, color=color, alpha=0.12, linewidth=0)


def write_svg(figure: Figure, path: Path, title: str) -> None:
    """Write a figure as text that is the same each time, without spaces at the ends of lines."""
    file = io.StringIO()
    metadata = {"Date": None, "Creator": None, "Title": title}
    figure.savefig(file, format="svg", metadata=metadata)
    lines = (line.rstrip() for line in file.getvalue().splitlines())
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Draw the methods that are recorded on all main sets, each with a learner of its own."""
    recorded = {p: curves_of(p) for p in MAIN_SETS if (STUDY / slug(p) / "curves.jsonl").exists()}
    chosen = json.loads(CHOSEN.read_text(encoding="utf-8"))
    names = [DEFAULT, *(n for n in METHODS["methods"] if n in chosen and n != DEFAULT)]
    names = [name for name in names if all(name in methods for methods in recorded.values())]
    count = len(COLORS)
    looks = {name: (COLORS[i % count], DASHES[i // count]) for i, name in enumerate(names)}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 4.4), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(1, len(recorded), sharey=True, squeeze=False)[0]
        for axes, (problems, methods) in zip(panels, recorded.items(), strict=True):
            draw(axes, {name: methods[name] for name in names}, looks)
            axes.set_title(problems)
            axes.set_xlabel("response tokens (M)")
        panels[0].set_ylabel("held-out avg@4")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        write_svg(figure, IMAGES / "study.svg", TITLE)


if __name__ == "__main__":
    main()
