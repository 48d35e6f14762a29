"""How many right and wrong answers are accepted, by measures that others made.

- `math_verify`: the tests of Math-Verify: gold, prediction, and what it should say. Those with a
  precision, a mode or values that are computed are left out. It is compared with by the extraction
  that its documentation shows.
- `nemo_skills`: the tests of the grader of NeMo-Skills: pairs of answers, in both directions.
- each FILE: JSON Lines with `response`, `reference`, `right` and perhaps `kind`. `pairs` were
  written, for 29 kinds of answers, by someone who had not read the grader.

The rival is Math-Verify alone: `parse` and `verify` of the response, and of the reference in a box
if it has no dollars. Give the checkouts of both repositories, at the versions to be measured:

    python benchmarks/grading/answers.py [--math-verify DIR] [--nemo-skills DIR] [--show] [FILE ...]
"""

import argparse
import ast
import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from math_verify import parse, verify
from rich.console import Console
from rich.table import Table

from rollwise.grading import MathGrader


class Pair(NamedTuple):
    """A response, a reference, whether it is right, and what kind it is of."""

    response: str
    reference: str
    right: bool
    kind: str = ""


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="JSON Lines of pairs")
    parser.add_argument("--math-verify", type=Path, help="a checkout of huggingface/Math-Verify")
    parser.add_argument("--nemo-skills", type=Path, help="a checkout of NVIDIA/NeMo-Skills")
    parser.add_argument("--show", action="store_true", help="list what is graded falsely")
    arguments = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    measures = {file.stem: list(read_pairs(file)) for file in arguments.files}
    if arguments.math_verify:
        measures["math_verify"] = list(of_math_verify(arguments.math_verify / "tests"))
    if arguments.nemo_skills:
        measures["nemo_skills"] = list(
            of_nemo_skills(arguments.nemo_skills / "tests/test_math_equal.py")
        )
    table = Table("measure", "", "pairs", "accepted", "by Math-Verify alone")
    figures: dict[str, float] = {}
    with MathGrader(timeout=20.0) as grader:
        for name, pairs in measures.items():
            ours = grader.grade([p.response for p in pairs], [p.reference for p in pairs]) > 0
            alone = [by_math_verify(pair) for pair in pairs]
            for right in (True, False):
                of_kind = [i for i, pair in enumerate(pairs) if pair.right == right]
                accepted = [sum(bool(verdicts[i]) for i in of_kind) for verdicts in (ours, alone)]
                kind = "right" if right else "wrong"
                table.add_row(name, kind, *map(str, (len(of_kind), *accepted)))
                figures[f"{name}_{kind}"] = len(of_kind)
                figures[f"{name}_{kind}_accepted"] = accepted[0]
                figures[f"{name}_{kind}_accepted_by_math_verify"] = accepted[1]
            if arguments.show:
                for pair, verdict in zip(pairs, ours, strict=True):
                    if verdict != pair.right:
                        shown = f"{pair.response[-90:]!r} for {pair.reference[-90:]!r}"
                        print(f"{name} {pair.kind} {'right' if pair.right else 'wrong'}: {shown}")
    Console().print(table)
    print(json.dumps(figures))


def read_pairs(file: Path) -> Iterator[Pair]:
    """Read a file of pairs."""
    for line in file.read_text().splitlines():
        row = json.loads(line)
        yield Pair(row["response"], row["reference"], row["right"], row.get("kind", ""))


def of_math_verify(folder: Path) -> Iterator[Pair]:
    """Read the pairs of tests whose only arguments are gold, prediction and expectation."""
    for file in sorted(folder.glob("test_*.py")):
        for test, names, values in parametrized(file):
            if {"gold", "pred"} <= {*names} and len(names) == 3:
                for value in values:
                    row = dict(zip(names, value, strict=True))
                    said = row.get("expected", row.get("result"))  # either is the third name
                    yield Pair(row["pred"], row["gold"], bool(said), test)


def of_nemo_skills(file: Path) -> Iterator[Pair]:
    """Read pairs of answers, of which the tests say by their names whether they are equal."""
    for test, _, values in parametrized(file):
        for pair in values:
            texts = ["" if each is None else str(each) for each in pair]
            for found, reference in (texts, texts[::-1]):
                if reference:
                    yield Pair(f"\\boxed{{{found}}}", reference, "incorrect" not in test, test)


def parametrized(file: Path) -> Iterator[tuple[str, list[str], list[Any]]]:
    """Yield each test's name, and the names and values of its parameters, if they are literals."""
    for test in ast.walk(ast.parse(file.read_text())):
        for call in test.decorator_list if isinstance(test, ast.FunctionDef) else ():
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("parametrize"):
                names = [name.strip() for name in ast.literal_eval(call.args[0]).split(",")]
                values = call.args[1].elts if isinstance(call.args[1], ast.List) else []
                yield test.name, names, [v for each in values for v in literals(each)]


def literals(value: ast.expr) -> Iterator[Any]:
    """Yield the value of a literal; nothing, if it is computed."""
    with contextlib.suppress(ValueError):
        yield ast.literal_eval(value)


def by_math_verify(pair: Pair) -> bool:
    """Grade as Math-Verify's documentation does."""
    reference = pair.reference
    gold = reference if "$" in reference or "\\boxed" in reference else f"\\boxed{{{reference}}}"
    try:
        return bool(verify(parse(gold), parse(pair.response)))
    except RecursionError:
        return False


if __name__ == "__main__":
    main()
