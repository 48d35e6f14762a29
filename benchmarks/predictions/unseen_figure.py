"""Draw what features say of prompts that were never drawn.

    python benchmarks/predictions/unseen_figure.py        # writes docs/images/unseen.svg

Left: the pass rate of first visits against what was expected of them, in ten parts, with
informative columns. Right: the share of tokens that choosing by worth needs, for each kind of
columns. The set-up is that of `unseen.py`, seeds 0 to 7.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from unseen import BURN_IN, KINDS, Run, of_seed

from rollwise.statistics.curves import mean_over_seeds

sys.path.append(str(Path(__file__).parents[1]))

from figures import COLORS, IMAGES, svg

SEEDS = 8
SHOWN = {"no features": COLORS[2], "labels": COLORS[5], "features": COLORS[1]}
NAMES = {"labels": "labels alone", "features": "all features"}


def draw_calibration(axes: Axes, runs: dict[str, list[Run]]) -> None:
    """Draw pass rates against expectations of first visits, ten parts for each belief."""
    axes.plot([0, 1], [0, 1], color="#888", linewidth=1, linestyle="--")
    for name, color in SHOWN.items():
        visits = np.concatenate([run.visits for run in runs[name]])
        _, expected, correct = visits[visits[:, 0] >= BURN_IN].T
        parts = np.array_split(np.argsort(expected), 10)
        points = [(expected[part].mean(), correct[part].mean()) for part in parts]
        axes.plot(*zip(*points, strict=True), "o-", color=color, label=NAMES.get(name, name))
    axes.set_title("first visits, informative columns")
    axes.set_xlabel("expected pass rate")
    axes.set_ylabel("pass rate")


def draw_tokens(axes: Axes, tokens: dict[str, dict[str, list[float]]]) -> None:
    """Draw a group of bars for each kind of columns, with intervals over seeds."""
    for place, (name, color) in enumerate(SHOWN.items()):
        means = [mean_over_seeds(tokens[kind][name]) for kind in KINDS]
        x = np.arange(len(KINDS)) + (place - 1) * 0.27
        errors = [[m.value - m.low for m in means], [m.high - m.value for m in means]]
        axes.bar(x, [m.value for m in means], 0.25, color=color, yerr=errors, capsize=2)
    axes.axhline(1.0, color="#888", linewidth=1, linestyle="--")
    axes.set_xticks(range(len(KINDS)), KINDS)
    axes.set_title("tokens to the level of uniform choice")
    axes.set_ylabel("share")


def main() -> None:
    """Run all beliefs on all kinds of columns, and draw."""
    found = {kind: [of_seed(kind, seed) for seed in range(SEEDS)] for kind in KINDS}
    runs = {name: [uniform[name] for _, uniform in found["informative"]] for name in SHOWN}
    tokens = {
        kind: {name: [figures[name]["tokens"] for figures, _ in seeds] for name in SHOWN}
        for kind, seeds in found.items()
    }
    title = "Beliefs about prompts that were never drawn"
    with svg(IMAGES / "unseen.svg", title, (8.4, 3.8)) as figure:
        left, right = figure.subplots(1, 2)
        draw_calibration(left, runs)
        draw_tokens(right, tokens)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)


if __name__ == "__main__":
    main()
