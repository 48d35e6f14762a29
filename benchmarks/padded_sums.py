"""A problem set whose lengths do not follow difficulty: sums whose answer goes on with a countdown.

`4?7+5-9+3?` is answered `7 12 3 6=6 4 3 2 1`. The countdown is part of the answer, so the grader
verifies it. The length of the whole answer is drawn log-normal, whatever the sum is, and decides
the number that is counted down from. The built-in model cannot count down; it is taught to, on the
first use, in three minutes of one core.

Run alone, this makes the set, measures it, and prints how pass rate and length relate. Over 1,024
problems and 16 responses each the correlation of pass rate and mean length is 0.02 (95 % interval
-0.05 to 0.08); lengths have a median of 26 tokens and a 99th percentile of 76, and pass rates a
mean of 0.28.

    python benchmarks/padded_sums.py [FOLDER]
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from problem_sets import APART, settings_of

from rollwise.config import ModelSettings
from rollwise.models.loading import load_model
from rollwise.tasks.problem import Problem
from rollwise.tasks.running_sums import make_terms, write_question

sys.path.append(str(Path(__file__).parents[1] / "scripts"))
import make_base_model

FEWEST_TERMS, MOST_TERMS = 4, 7
MEDIAN, SIGMA = 28, 0.5
"""Of the tokens of a correct answer."""
MOST = 27
"""The largest number that is counted down from."""
LONGEST = 106
"""Tokens of the longest answer; the longest question has 17, and the model's context is 128."""
BEGINNINGS = {"steps": 400, "learning_rate": 2e-3}
WHOLE = {"steps": 150, "learning_rate": 1e-3, "batch_size": 64}
"""How the model is taught: first to copy the number, by beginnings of countdowns, then the rest."""


def make_problems(count: int, rng: np.random.Generator) -> list[Problem]:
    """Make so many different problems."""
    problems: dict[str, Problem] = {}
    while len(problems) < count:
        terms = make_terms(int(rng.integers(FEWEST_TERMS, MOST_TERMS + 1)), rng)
        totals = " ".join(map(str, np.cumsum(terms)))
        wanted = rng.lognormal(np.log(MEDIAN), SIGMA) - len(f"{totals}={sum(terms)} \n")
        lengths = [len(count_down(number)) for number in range(1, MOST + 1)]
        if wanted > lengths[-1]:
            continue
        number = 1 + int(np.argmin(np.abs(np.array(lengths) - wanted)))
        question = f"{number}?{write_question(terms, rng)}"
        answer = f"{sum(terms)} {count_down(number)}"
        problem = Problem.ask(question, answer, source="padded-sums", level=len(terms))
        problems[problem.key] = problem
    return list(problems.values())


def demonstrate(rng: np.random.Generator) -> tuple[str, str]:
    """Make a question and a demonstration, noisy as those of the built-in model.

    Here all numbers are as frequent, so that the model counts down from large ones as surely.
    """
    number = int(rng.integers(1, MOST + 1))
    terms = make_terms(int(rng.integers(FEWEST_TERMS, MOST_TERMS + 1)), rng)
    answer = make_base_model.write_demonstration(terms, rng).removesuffix("\n")
    return f"{number}?{write_question(terms, rng)}", f"{answer} {count_down(number)}\n"


def demonstrate_beginning(rng: np.random.Generator) -> tuple[str, str]:
    """Make a demonstration that is cut before the third number of its countdown."""
    question, answer = demonstrate(rng)
    totals, _, countdown = answer.partition("=")
    return question, f"{totals}={' '.join(countdown.split(' ')[:3])}"


def count_down(number: int) -> str:
    """Write the numbers from `number` to 1: 3 -> `3 2 1`."""
    return " ".join(map(str, range(number, 0, -1)))


def teach_counting() -> tuple[Any, Any]:
    """Teach the built-in model to count down after its sums; return it and its tokenizer."""
    model, tokenizer = load_model(ModelSettings())
    rng = np.random.default_rng(0)
    for make, how in ((demonstrate_beginning, BEGINNINGS), (demonstrate, WHOLE)):
        make_base_model.learn(model.train(), tokenizer, make, rng=rng, **how)
    return model, tokenizer


def measure(settings: dict[str, dict[str, Any]], folder: Path) -> dict[str, float]:
    """Draw 16 responses to each training problem; relate pass rates to mean lengths."""
    command = [sys.executable, "-m", "rollwise", "prepare", "--output", str(folder)]
    command += ["--data.sources", settings["data"]["train"], "--selection.range", "all"]
    for section in ("model", "grading", "engine"):
        for name, value in settings[section].items():
            command += [f"--{section}.{name}", str(value)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rewards: dict[str, list[float]] = {}
    tokens: dict[str, list[int]] = {}
    for row in pq.read_table(folder / "responses").to_pylist():
        rewards.setdefault(row["key"], []).append(row["reward"])
        tokens.setdefault(row["key"], []).append(row["tokens"])
    rates_P = np.array([np.mean(of_prompt) for of_prompt in rewards.values()])
    means_P = np.array([np.mean(of_prompt) for of_prompt in tokens.values()])
    every = np.concatenate(list(tokens.values()))
    return {
        "pass rate": float(rates_P.mean()),
        "correlation of pass rate and mean length": float(np.corrcoef(rates_P, means_P)[0, 1]),
        "median length": float(np.median(every)),
        "99th percentile of lengths": float(np.percentile(every, 99)),
        "never solved": float(np.mean(rates_P == 0)),
        "pass rate above 3/4": float(np.mean(rates_P > 0.75)),
    }


def main() -> None:
    """Make the set, measure it, and print."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        figures = measure(settings_of(APART, folder), Path(temporary) / "measured")
    for name, value in figures.items():
        print(f"{name}: {value:.3g}")
    print(json.dumps({name.replace(" ", "_"): {"value": v} for name, v in figures.items()}))


if __name__ == "__main__":
    main()
