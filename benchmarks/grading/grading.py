"""What grading a training step costs, against one call of Math-Verify after another.

A step has 512 prompts of 32 responses. Problems are those of MATH-500 where the data is at hand
(../shared/data/math500.jsonl), else made up. A response is the problem's reference solution without
its box, some words, and a box: 60 % repeat the reference, the others one of three wrong answers
(integers where the reference is one); 1 in 50 is cut off anywhere; 1 in 4,096 is hostile (towers of
powers, factorials, …).

The rival calls `parse` and `verify` as Math-Verify's documentation does, with its own time-outs of
5 s, in the main thread; it is timed on a sample of each kind of response and extrapolated per
response. Both run on the same machine, in turn. Workers are started beforehand, and each repeat has
a new grader, so that no verdict is remembered from another. A ratio's interval: the rival's mean by
bootstrap over its sample (95 %), over the slowest and the fastest of the repeats. On a machine that
does other work, processor time is the fairer measure: a ratio of it, times the cores that grade, is
the throughput's.

    OMP_NUM_THREADS=1 python benchmarks/grading/grading.py [--quick]
"""

import argparse
import contextlib
import json
import logging
import os
import random
import time
from pathlib import Path

import numpy as np
from math_verify import parse, verify
from rich.console import Console
from rich.table import Table

from rollwise.grading import MathGrader

DATA = Path(__file__).parents[3] / "shared/data/math500.jsonl"
PROMPTS, RESPONSES = 512, 32
HOSTILE_EVERY = 4096
HOSTILE = (
    "9^{9^{9^{9}}}",
    "(10^{10})!",
    "(" * 5000,
    r"\int_0^{10^{10}} x^{x^{x}} dx",
    "9" * 100_000,
    "0." + "3" * 100_000,
    r"\frac{" * 2000 + "1" + "}{2}" * 2000,
    "((2^{99})^{99})^{99}!",
)
"""Final answers that take Math-Verify long, or its process down."""

Pair = tuple[str, str]


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="64 prompts, a smaller sample")
    quick = parser.parse_args().quick
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    plain, hostile = step(64 if quick else PROMPTS, random.Random(0))
    pairs = [*plain, *hostile]
    random.Random(1).shuffle(pairs)
    repeats = range(2 if quick else 3)
    ours = np.array([graded(pairs) for _ in repeats])
    ours_plain = np.array([graded(plain) for _ in repeats])
    for pair in random.Random(3).sample(plain, 20 if quick else 200):
        one_call(*pair)  # SymPy's first calls take longer
    sample = random.Random(2).sample(plain, 100 if quick else 500)
    plain_each = np.array([one_call(*pair) for pair in sample])
    hostile_each = np.array([one_call(*pair) for pair in hostile]).reshape(
        -1, 2
    )  # none in a quick look
    rival, rival_used = (extrapolated(plain_each[:, kind], len(plain)) for kind in (0, 1))
    figures = compared("", ours[:, 0], rival + hostile_each[:, 0].sum())
    figures |= compared("plain_", ours_plain[:, 0], rival)
    figures |= compared("plain_processor_", ours_plain[:, 1], rival_used)
    show(figures, f"{len(pairs):,} responses, {len(hostile)} hostile; plain: without")


def step(prompts: int, rng: random.Random) -> tuple[list[Pair], list[Pair]]:
    """Make a step's pairs of response and reference; the hostile ones apart."""
    tasks = problems(prompts)
    plain: list[Pair] = []
    hostile: list[Pair] = []
    for solution, reference in tasks:
        others = [a for _, a in tasks if a.isdecimal() == reference.isdecimal() and a != reference]
        wrong = rng.sample(others, 3)
        for _ in range(RESPONSES):
            if (len(plain) + len(hostile)) % HOSTILE_EVERY == HOSTILE_EVERY // 2:
                bomb = HOSTILE[len(hostile) % len(HOSTILE)]
                hostile.append((response(solution, bomb, rng), reference))
                continue
            answer = reference if rng.random() < 0.6 else rng.choice(wrong)
            text = response(solution, answer, rng)
            cut = rng.randrange(len(text)) if rng.random() < 0.02 else None
            plain.append((text[:cut], reference))
    return plain, hostile


def problems(count: int) -> list[Pair]:
    """Take solutions and references of MATH-500, again from the start if need be, or make some."""
    if not DATA.exists():
        made = "As $x = {0}$ and $y = 2x + 1$, we find $y = 2 \\cdot {0} + 1$, and divide.\n"
        return [
            (made.format(i), f"\\frac{{{i}}}{{{2 * i + 1}}}" if i % 3 else str(i))
            for i in range(1, count + 1)
        ]
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    found = [(row["solution"].replace("\\boxed", ""), row["answer"]) for row in rows]
    return [found[i % len(found)] for i in range(count)]


def response(solution: str, answer: str, rng: random.Random) -> str:
    """Write a response as a model would: other words each time, the answer in a box."""
    check = f"Checking step {rng.randrange(1000)} again, all is right."
    end = rng.choice(["Therefore, the answer is", "So the final answer is", "Hence we get"])
    return f"{solution}\n{check}\n{end} $\\boxed{{{answer}}}$."


def graded(pairs: list[Pair]) -> tuple[float, float]:
    """Seconds that our grader takes for all pairs: by the clock, and of processors.

    The latter hold the start of the workers, too.
    """
    responses, references = zip(*pairs, strict=True)
    used = processor_seconds()
    with MathGrader() as grader:
        grader.grade([f"$\\boxed{{{i}}}$ is it." for i in range(50)], ["a"] * 50)  # start
        began = time.perf_counter()
        grader.grade(responses, references)
        seconds = time.perf_counter() - began
    return seconds, processor_seconds() - used


def processor_seconds() -> float:
    """Processor time of this process and of those that it started and that ended."""
    return sum(os.times()[:4])


def one_call(text: str, reference: str) -> tuple[float, float]:
    """Seconds that Math-Verify takes for one pair: by the clock, and of processors."""
    began, used = time.perf_counter(), time.process_time()
    with contextlib.suppress(RecursionError):
        verify(parse(f"\\boxed{{{reference}}}"), parse(text))
    return time.perf_counter() - began, time.process_time() - used


def extrapolated(seconds: np.ndarray, count: int) -> np.ndarray:
    """Seconds for `count` responses: the estimate, and 1,000 bootstrapped ones."""
    resampled = np.random.default_rng(0).choice(seconds, (1000, len(seconds))).mean(axis=1)
    return np.append(seconds.mean(), resampled) * count


def compared(prefix: str, ours: np.ndarray, rival: np.ndarray) -> dict[str, tuple[float, ...]]:
    """Compare seconds; each figure is a value, a low and a high."""
    middle, (low, high) = np.median(ours), np.quantile(rival[1:], [0.025, 0.975])
    return {
        f"{prefix}grading_seconds": (middle, ours.min(), ours.max()),
        f"{prefix}rival_seconds": (rival[0], low, high),
        f"{prefix}throughput_ratio": (rival[0] / middle, low / ours.max(), high / ours.min()),
    }


def show(figures: dict[str, tuple[float, ...]], title: str) -> None:
    """Print the table and the line of JSON."""
    names = ("value", "low", "high")
    table = Table("", *names, title=title)
    for name, values in figures.items():
        table.add_row(name, *(f"{value:.1f}" for value in values))
    Console().print(table)
    print(json.dumps({n: dict(zip(names, map(float, v), strict=True)) for n, v in figures.items()}))


if __name__ == "__main__":
    main()
