"""How benchmarks draw: one look, and SVG files that are the same each time."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

IMAGES = Path(__file__).parents[1] / "docs/images"
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


@contextmanager
def svg(path: Path, title: str, size: tuple[float, float]) -> Iterator[Figure]:
    """Open a figure of so many inches; at the end write it, without spaces at the ends of lines."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        yield figure
        file = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Title": title}
        figure.savefig(file, format="svg", metadata=metadata)
    lines = (line.rstrip() for line in file.getvalue().splitlines())
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
