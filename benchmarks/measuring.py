"""What benchmarks share: arguments, intervals, pairs in turns, tables, the line of JSON."""

import argparse
import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import stats

from rollwise import loops
from rollwise.engines import Engine, Response
from rollwise.sampling import Draw
from rollwise.statistics.curves import mean_over_seeds
from rollwise.step import Prompts

Figure = dict[str, float]
"""A `value`, with the `low` and the `high` end of its interval if it has one."""


def arguments(doc: str, quick: str, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser with `--quick`, and an option for each default."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=quick)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser


def draw_all(engine: Engine, draws: Sequence[Draw], prompts: Prompts) -> list[Response]:
    """Draw all together; returns the responses in the order of their draws."""

    async def all_of() -> list[Response]:
        return await asyncio.gather(*(engine.complete(d, prompts[d.key]) for d in draws))

    return loops.run(all_of())


def over_seeds(values: Iterable[float]) -> Figure:
    """Return the mean with its 95 % interval, by Student's t."""
    return dict(vars(mean_over_seeds(values)))


def quantiles(values: Iterable[float], low: float = 0.25, high: float = 0.75) -> Figure:
    """Return the median, between two quantiles: by default the quartiles."""
    ends = np.quantile(list(values), (0.5, low, high)).tolist()
    return dict(zip(("value", "low", "high"), ends, strict=True))


def bootstrapped(statistic: Callable[..., Any], *samples: np.ndarray, seed: int = 0) -> Figure:
    """Return a statistic of paired samples with its 95 % interval, by percentile bootstrap."""
    low, high = stats.bootstrap(
        samples, statistic, paired=True, n_resamples=2000, method="percentile", rng=seed
    ).confidence_interval
    return {"value": float(statistic(*samples)), "low": float(low), "high": float(high)}


def in_turns(
    ours: Callable[[], float], rivals: Sequence[Callable[[], float]], pairs: int, title: str
) -> Figure:
    """Return the best rival's figure over ours, by pairs that take turns; all run once before."""
    ours()
    rival = min(rivals, key=lambda run: run())
    return quantiles(
        rival() / ours() for _ in track(range(pairs), title, console=Console(stderr=True))
    )


def shown(figure: Mapping[str, float], digits: str = ".3f") -> str:
    """Write a value with its interval, if it has one."""
    value, *ends = (f"{figure[e]:{digits}}" for e in ("value", "low", "high") if e in figure)
    return f"{value} [{', '.join(ends)}]" if ends else value


def print_table(title: str, columns: Sequence[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table; all columns but the first are aligned to the right."""
    table = Table(title=title)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)


def print_line(figures: Mapping[str, Any]) -> None:
    """Print the line that a benchmark ends with: the figures as JSON."""
    print(json.dumps(figures))


def report(title: str, figures: Mapping[str, Figure], digits: str = ".3f") -> None:
    """Print figures as a table, and as the line of JSON."""
    rows = ((name, shown(figure, digits)) for name, figure in figures.items())
    print_table(title, ("", "value [interval]"), rows)
    print_line(figures)
