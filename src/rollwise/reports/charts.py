"""What the charts of a report show: lines over a grid of points, as `parts/charts.js` draws them.

A grid is what lines are drawn over: one or more axes of equal length, such as steps, draws and
tokens. The charts on one grid are zoomed together.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

SMOOTHED = 10
"""Steps that a smooth line averages over, or a hundredth of the run if that is more."""

Floats = NDArray[np.float64]
Chart = dict[str, Any]


def line(label: str, values: ArrayLike, **others: Any) -> dict[str, Any]:
    """Make a line of a chart.

    Args:
        label: Its name.
        values: Over the points of the grid; NaN where there are none.
        others: `low` and `high`, a band around it; `style`, which is `faint`, `dashed`, `points` or
            a plain line; `colour`, the number of its colour; `points`, which marks each value;
            `group`, the label of another line that switches this one too.
    """
    return {"label": label, "values": np.asarray(values, dtype=float), **others}


def estimates(
    label: str, found: Sequence[Mapping[str, float] | None], **others: Any
) -> dict[str, Any]:
    """Make a line of estimates, each a point, with a band of their intervals; None is a gap."""
    value, low, high = (
        np.array([np.nan if each is None else each[part] for each in found])
        for part in ("value", "low", "high")
    )
    return line(label, value, low=low, high=high, points=True, **others)


def chart(name: str, lines: Sequence[dict[str, Any]], grid: str = "steps", **others: Any) -> Chart:
    """Make a chart.

    Args:
        name: Its id in the page.
        lines: See `line`.
        grid: What it is drawn over.
        others: What `described` does not say of it: `title`; `about`, a sentence; `unit`, of which
            `share` is shown in percent; `low` and `high`, the ends of its axis; `xlabel`;
            `stacked`; `wide`.
    """
    return {**described().get(name, {}), "id": name, "lines": list(lines), "grid": grid, **others}


@cache
def described(what: str = "charts") -> dict[str, dict[str, Any]]:
    """Return the contents of `parts/charts.toml`, or of another such file."""
    file = files("rollwise.reports") / f"parts/{what}.toml"
    return tomllib.loads(file.read_text("utf-8"))


def evenly(count: int, wanted: int) -> list[int]:
    """Return up to `wanted` places of `count`, evenly spaced, with the first and the last."""
    if count <= wanted:
        return list(range(count))
    return [int(place) for place in np.unique(np.linspace(0, count - 1, wanted).round())]


def moving_mean(values_S: Floats, width: int) -> Floats:
    """Average over the last `width` values, or as many as there are; NaN is ignored."""
    known = ~np.isnan(values_S)
    sums = np.cumsum(np.where(known, values_S, 0.0))
    counts = np.cumsum(known).astype(float)
    sums[width:], counts[width:] = sums[width:] - sums[:-width], counts[width:] - counts[:-width]
    means: Floats = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return means
