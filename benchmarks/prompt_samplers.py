"""What choosing prompts costs with up to 10 million of them: time, memory, files.

CDAS as published chooses `--batch` prompts of string keys; its figures are those of the last line.
The other samplers stand beside it, and so does a plain rival, the way of CDAS's released code:
dictionaries of lists, sorting, JSON. Outcomes are random; difficulties are normal, as after a long
run. Values are medians over repeats, low and high their 2.5 % and 97.5 % quantiles (in the tables
the high ones in brackets). Memory is what Python and NumPy hold beyond the caller's own keys, after
the first steps (warm-up included). Files lie in the temporary folder and are not synced to a disk;
a state is loaded into a new sampler, which has to hash its keys.

    OMP_NUM_THREADS=1 python benchmarks/prompt_samplers.py [--quick] [--batch N] [--seed N]
"""

import argparse
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from rich.console import Console
from rich.table import Table

import rollwise.prompts as rp

Figure = dict[str, float]
Make = Callable[[Sequence[str], int], rp.FixedSetSampler]

SAMPLERS: dict[str, Make] = {
    "CDAS, paper": lambda keys, batch: rp.CDAS(keys, batch),
    "CDAS, calibrated": lambda keys, batch: rp.CDAS(keys, batch, form="calibrated"),
    "CDAS, limited": lambda keys, batch: rp.CDAS(keys, batch, visits=1000),
    "Uniform": lambda keys, batch: rp.Uniform(keys, batch),
    "Curriculum": lambda keys, batch: rp.Curriculum(keys, batch, levels=[5] * len(keys)),
    "Prioritized": lambda keys, batch: rp.Prioritized(keys, batch),
    "Posterior": lambda keys, batch: rp.Posterior(keys, batch),
}
DRAWN = 8


class Dictionaries:
    """The rival: a list of difficulties for each problem, all of them looked at and sorted."""

    def __init__(self, keys: Sequence[str], difficulty: np.ndarray) -> None:
        self.histories = dict(zip(keys, ([d] for d in difficulty.tolist()), strict=True))
        self.competence = -float(difficulty.mean())

    def ask(self, count: int) -> list[str]:
        """Sort either side, take half of each."""
        latest = [(key, history[-1]) for key, history in self.histories.items()]
        above = sorted((x for x in latest if x[1] > self.competence), key=lambda x: x[1])
        below = sorted((x for x in latest if x[1] <= self.competence), key=lambda x: -x[1])
        return [key for key, _ in above[: count // 2] + below[: count - count // 2]]

    def tell(self, keys: Sequence[str], correct: np.ndarray, drawn: int) -> None:
        """Append to the histories, then go through all of them for the mean."""
        for key, positives in zip(keys, correct.tolist(), strict=True):
            history = self.histories[key]
            expected = 1 / (1 + np.exp(history[-1] - self.competence))
            t = len(history)
            history.append((t - 1) / t * history[-1] + (expected - positives / drawn) / t)
        self.competence = -sum(h[-1] for h in self.histories.values()) / len(self.histories)

    def save(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps([self.competence, self.histories]))

    def load(self, path: Path) -> None:
        """From JSON."""
        self.competence, self.histories = json.loads(path.read_text())


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1 million prompts, fewer repeats")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    most, repeats = (10**6, 15) if arguments.quick else (10**7, 40)
    rng = np.random.default_rng(arguments.seed)
    console = Console(width=120)

    keys = [f"prompt-{i:08d}" for i in range(most)]
    headline = measure(SAMPLERS["CDAS, paper"], keys, arguments.batch, repeats, rng)
    rows = {"CDAS, paper": headline}
    for name, make in SAMPLERS.items():
        if name not in rows:
            rows[name] = measure(make, keys, arguments.batch, repeats // 3, rng, files=1)
    show(console, f"{most:,} prompts, string keys, batches of {arguments.batch:,}", rows)

    sizes = [size for size in (10**5, 10**6, 10**7) if size <= most]
    rows = {f"{n:,}": growth(keys[:n], arguments.batch, repeats, rng) for n in sizes}
    rows |= {
        f"{most:,}, batch {b:,}": f
        for b, f in batches(keys, (64, 256, 1024, 4096), repeats, rng).items()
    }
    show(console, "CDAS, paper: how its cost grows", rows)

    rivals = {
        n: rival(keys[:n], arguments.batch, rng) for n in sizes[: 1 if arguments.quick else 2]
    }
    show(
        console,
        "The rival: dictionaries of lists and JSON",
        {f"{n:,}": f for n, f in rivals.items()},
    )
    print(json.dumps(headline))


def measure(
    make: Make,
    keys: Sequence[str],
    batch: int,
    repeats: int,
    rng: np.random.Generator,
    files: int = 3,
) -> dict[str, Figure]:
    """Measure all there is to one sampler."""
    held = held_bytes(make, keys, batch, rng)
    saves, loads = [], []
    sampler = converged(make(keys, batch), rng)
    for _ in range(files):
        with tempfile.TemporaryDirectory() as folder:
            saves.append(timed(save, sampler, Path(folder))[0])
            sampler = make(keys, batch)  # anew, so that loading has to hash its keys
            loads.append(timed(load, sampler, Path(folder))[0])
    before = state_bytes(sampler)
    asks, tells = steps(sampler, repeats, rng)
    return {
        "ask_ms": figure(asks, 1e3),
        "tell_ms": figure(tells, 1e3),
        "bytes_per_prompt": figure([held / len(keys)]),
        "save_s": figure(saves),
        "load_s": figure(loads),
        "state_growth_bytes": figure([state_bytes(sampler) - before]),
    }


def growth(
    keys: Sequence[str], batch: int, repeats: int, rng: np.random.Generator
) -> dict[str, Figure]:
    """Measure CDAS's verbs over some prompts."""
    sampler = converged(rp.CDAS(keys, batch), rng)
    asks, tells = steps(sampler, repeats, rng)
    return {"ask_ms": figure(asks, 1e3), "tell_ms": figure(tells, 1e3)}


def batches(
    keys: Sequence[str], sizes: Sequence[int], repeats: int, rng: np.random.Generator
) -> dict[int, dict[str, Figure]]:
    """Measure CDAS's verbs with batches of several sizes."""
    sampler = converged(rp.CDAS(keys, max(sizes)), rng)
    timings = {size: steps(sampler, repeats, rng, size) for size in sizes}
    return {
        size: {"ask_ms": figure(asks, 1e3), "tell_ms": figure(tells, 1e3)}
        for size, (asks, tells) in timings.items()
    }


def rival(keys: Sequence[str], batch: int, rng: np.random.Generator) -> dict[str, Figure]:
    """Measure the plain way."""
    plain = Dictionaries(keys, rng.normal(0.0, 0.3, len(keys)))
    asks, tells = [], []
    for _ in range(5):
        seconds, chosen = timed(plain.ask, batch)
        asks.append(seconds)
        correct = rng.integers(0, DRAWN + 1, batch)
        tells.append(timed(plain.tell, chosen, correct, DRAWN)[0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.json"
        saved, loaded = timed(plain.save, path)[0], timed(plain.load, path)[0]
    return {
        "ask_ms": figure(asks, 1e3),
        "tell_ms": figure(tells, 1e3),
        "save_s": figure([saved]),
        "load_s": figure([loaded]),
    }


def converged(sampler: rp.FixedSetSampler, rng: np.random.Generator) -> rp.FixedSetSampler:
    """Bring CDAS to where it is after a long run, by way of its state."""
    state = sampler.state_dict()
    if "belief.difficulty" in state:
        difficulty = rng.normal(0.0, 0.3, len(sampler.keys))
        state["belief.difficulty"] = difficulty
        state["belief.competence"] = -float(difficulty.mean())
        state["belief.visits"] = rng.integers(1, 20, len(sampler.keys), dtype=np.uint32)
        state["walk.epoch"] = 1
        sampler.load_state_dict(state)
    return sampler


def steps(
    sampler: rp.FixedSetSampler,
    repeats: int,
    rng: np.random.Generator,
    count: int | None = None,
) -> tuple[list[float], list[float]]:
    """Ask and tell, timed; what the first two steps take is not counted."""
    asks, tells = [], []
    for _ in range(repeats + 2):
        seconds, chosen = timed(sampler.ask, count)
        asks.append(seconds)
        drawn = np.full(len(chosen), DRAWN)
        correct = rng.integers(0, DRAWN + 1, len(chosen))
        tells.append(timed(sampler.tell, chosen, correct, drawn)[0])
    return asks[2:], tells[2:]


def held_bytes(make: Make, keys: Sequence[str], batch: int, rng: np.random.Generator) -> int:
    """Count what a new sampler holds after its first steps, beyond the keys."""
    tracemalloc.start()
    sampler = make(keys, batch)
    steps(sampler, 1, rng)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held


def save(sampler: rp.FixedSetSampler, folder: Path) -> None:
    """Write a state as checkpoints do: arrays as safetensors, scalars as JSON."""
    state = sampler.state_dict()
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    safetensors.numpy.save_file(arrays, folder / "sampler.safetensors")
    scalars = {name: value for name, value in state.items() if name not in arrays}
    (folder / "state.json").write_text(json.dumps(scalars))


def load(sampler: rp.FixedSetSampler, folder: Path) -> None:
    """Read what `save` wrote."""
    arrays = safetensors.numpy.load_file(folder / "sampler.safetensors")
    sampler.load_state_dict({**arrays, **json.loads((folder / "state.json").read_text())})


def state_bytes(sampler: rp.FixedSetSampler) -> int:
    """Size of a state's arrays."""
    return sum(v.nbytes for v in sampler.state_dict().values() if isinstance(v, np.ndarray))


def timed(call: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Seconds that a call takes, and what it returns."""
    began = time.perf_counter()
    result = call(*arguments)
    return time.perf_counter() - began, result


def figure(values: Sequence[float], scale: float = 1.0) -> Figure:
    """Median and 95 % range over repeats."""
    low, value, high = np.quantile(np.asarray(values) * scale, (0.025, 0.5, 0.975)).tolist()
    return {"value": value, "low": low, "high": high}


def show(console: Console, title: str, rows: dict[str, dict[str, Figure]]) -> None:
    """Print figures as a table."""
    names = list(next(iter(rows.values())))
    table = Table(title=title)
    for column in ("", *names):
        table.add_column(column.replace("_", " "), justify="right" if column else "left")
    for row, figures in rows.items():
        cells = (f"{figures[n]['value']:.3g} ({figures[n]['high']:.3g})" for n in names)
        table.add_row(row, *cells)
    console.print(table)


if __name__ == "__main__":
    main()
