"""What grading a training step costs, against one call of Math-Verify after another.

A step has 512 prompts of 32 responses. References are those of MATH-500 where the data is at hand
(../shared/data/math500.jsonl), else made up. Of each prompt's responses 60 % repeat the reference,
the others one of three wrong answers; 1 in 20 is cut off before its answer; 1 in 2,048 is hostile
(towers of powers, factorials, brackets, …). All are prose of about 1,500 characters that ends in a
box.

The rival calls `parse` and `verify` as Math-Verify's documentation does, with its own time-outs of
5 s, in the main thread; it is timed on a sample of each kind of response and extrapolated per
response. Both run on the same machine, in turn. Workers are started beforehand, and each repeat has
a new grader, so that no verdict is remembered from another. The ratio's interval: the rival's mean
by bootstrap over its sample (95 %), over the slowest and the fastest of the repeats.

    OMP_NUM_THREADS=1 python benchmarks/grading.py [--quick]
"""

import argparse
import contextlib
import json
import logging
import random
import time
from pathlib import Path

import numpy as np
from math_verify import parse, verify
from rich.console import Console
from rich.table import Table

from rollwise.grading import MathGrader

DATA = Path(__file__).parents[2] / "shared/data/math500.jsonl"
PROMPTS, RESPONSES = 512, 32
HOSTILE_EVERY = 2048
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
    ours = np.array([graded(pairs) for _ in range(2 if quick else 3)])
    sample = random.Random(2).sample(plain, 100 if quick else 500)
    plain_each = np.array([one_call(*pair) for pair in sample])
    hostile_each = np.array([one_call(*pair) for pair in hostile])
    rival = extrapolated(plain_each, hostile_each, len(plain))
    show(ours, rival, len(pairs), len(hostile))


def step(prompts: int, rng: random.Random) -> tuple[list[Pair], list[Pair]]:
    """Make a step's pairs of response and reference; the hostile ones apart."""
    references = answers(prompts)
    plain: list[Pair] = []
    hostile: list[Pair] = []
    for reference in references:
        wrong = rng.sample(references, 3)
        for _ in range(RESPONSES):
            if (len(plain) + len(hostile)) % HOSTILE_EVERY == HOSTILE_EVERY // 2:
                bomb = HOSTILE[len(hostile) % len(HOSTILE)]
                hostile.append((response(bomb, rng), reference))
                continue
            answer = reference if rng.random() < 0.6 else rng.choice(wrong)
            text = response(answer, rng)
            cut = len(text) - 100 if rng.random() < 0.05 else None
            plain.append((text[:cut], reference))
    return plain, hostile


def answers(count: int) -> list[str]:
    """Take the references of MATH-500, again from the start if need be, or make some up."""
    if not DATA.exists():
        return [f"\\frac{{{i}}}{{{2 * i + 1}}}" if i % 3 else str(i) for i in range(1, count + 1)]
    found = [json.loads(line)["answer"] for line in DATA.read_text().splitlines()]
    return [found[i % len(found)] for i in range(count)]


def response(answer: str, rng: random.Random) -> str:
    """Write a response as a model would: other words each time, the answer in a box."""
    lines = [
        f"Step {i}: we have $x_{{{i}}} = {rng.randrange(1000)}$ and so $y = \\frac{{{i}}}{{7}}$, "
        "which we put into the equation above to go on."
        for i in range(1, 13)
    ]
    end = rng.choice(["Therefore, the answer is", "So the final answer is", "Hence we get"])
    return "\n".join([*lines, f"{end} $\\boxed{{{answer}}}$."])


def graded(pairs: list[Pair]) -> float:
    """Seconds that our grader takes for all pairs."""
    responses, references = zip(*pairs, strict=True)
    with MathGrader() as grader:
        grader.grade([f"$\\boxed{{{i}}}$ is it." for i in range(50)], ["a"] * 50)  # start
        began = time.perf_counter()
        grader.grade(responses, references)
        return time.perf_counter() - began


def one_call(text: str, reference: str) -> float:
    """Seconds that Math-Verify takes for one pair."""
    began = time.perf_counter()
    with contextlib.suppress(RecursionError):
        verify(parse(f"\\boxed{{{reference}}}"), parse(text))
    return time.perf_counter() - began


def extrapolated(plain: np.ndarray, hostile: np.ndarray, count: int) -> np.ndarray:
    """Seconds for the whole step: the estimate, and 1,000 bootstrapped ones."""
    rng = np.random.default_rng(0)
    resampled = rng.choice(plain, (1000, len(plain))).mean(axis=1)
    return np.append(plain.mean(), resampled) * count + hostile.sum()


def show(ours: np.ndarray, rival: np.ndarray, count: int, hostile: int) -> None:
    """Print the table and the line of JSON."""
    low, high = np.quantile(rival[1:], [0.025, 0.975])
    figures = {
        "grading_seconds": (np.median(ours), ours.min(), ours.max()),
        "rival_seconds": (rival[0], low, high),
        "responses_per_second": tuple(count / np.array([np.median(ours), ours.max(), ours.min()])),
        "throughput_ratio": (rival[0] / np.median(ours), low / ours.max(), high / ours.min()),
    }
    table = Table("", "value", "low", "high", title=f"{count:,} responses, {hostile} hostile")
    for name, values in figures.items():
        table.add_row(name, *(f"{value:.1f}" for value in values))
    Console().print(table)
    names = ("value", "low", "high")
    print(
        json.dumps(
            {name: dict(zip(names, map(float, v), strict=True)) for name, v in figures.items()}
        )
    )


if __name__ == "__main__":
    main()
