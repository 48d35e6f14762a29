r"""How many right and wrong answers are accepted, in the forms in which people write them.

References are those of MATH, MATH-500 and AIME 2024 where the data is at hand (../shared/data), and
of other files that are named, whose rows have `answer`. Each is written in every form that suits it
(a full stop in the box, `\mathbf`, digits in groups, powers of ten, units, …), which is right, and
the same is done with wrong answers: a digit or the sign changed, ten times as much, a fraction
turned over, a value left out, the entries of a matrix or tuple permuted, another unit or base, a
letter or a factorial sign after a number, a space inside, another problem's answer. The rival is
Math-Verify alone: `parse` and `verify` of the response and of the reference in a box.

    OMP_NUM_THREADS=1 python benchmarks/answer_forms.py [--quick] [--show] [FILE ...]
"""

import argparse
import json
import logging
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
from math_verify import parse, verify
from rich.console import Console
from rich.table import Table

from rollwise.grading import MathGrader

DATA = Path(__file__).parents[2] / "shared/data"
MADE = ("7", "-12", "1525", "0.75", r"\frac{4}{3}", "3.5e7", r"3\sqrt{13}", "(2, -3)", "2, -3")
INTEGER = re.compile(r"-?\d+")
DECIMAL = re.compile(r"-?\d+\.\d+")
SCIENTIFIC = re.compile(r"(-?\d+(?:\.\d+)?)e(-?\d+)")
FRACTION = re.compile(r"(-?)\\frac\{(\d+)\}\{(\d+)\}")
LIST = re.compile(r"[^,()\[\]{}]+(?:,[^,()\[\]{}]+)+")
TUPLE = re.compile(r"\(([^,()\[\]{}]+),([^,()\[\]{}]+)\)")
WORDS = re.compile(r"\\text\{([A-Za-z ]{4,})\}")
MATRIX = re.compile(r"(\\begin\{pmatrix\})(.*)(\\end\{pmatrix\})", re.DOTALL)

Pair = tuple[str, str, str]
"""A form's name, a response, a reference."""


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="JSON Lines with `answer`")
    parser.add_argument("--quick", action="store_true", help="10 references of a file")
    parser.add_argument("--show", action="store_true", help="list what is graded falsely")
    arguments = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    rng = random.Random(0)
    named = ("math_train.parquet", "math500.jsonl", "aime24.jsonl")
    references = read([*(DATA / name for name in named), *arguments.files])
    references = [
        rng.sample(some, min(len(some), 10 if arguments.quick else 150)) for some in references
    ]
    every = [answer for some in references for answer in some]
    right = [pair for answer in every for pair in responses(answer, answer)]
    wrong = [
        pair
        for answer in every
        for other in wrong_answers(answer, every, rng)
        for pair in rng.sample([*responses(other, answer)], 3)
    ]
    wrong += [pair for answer in every for pair in misreadings(answer, rng)]
    figures = {}
    with MathGrader(timeout=20.0) as grader:
        for kind, pairs in (("right", right), ("wrong", wrong)):
            found = grader.grade([r for _, r, _ in pairs], [a for _, _, a in pairs]) > 0
            alone = [by_math_verify(response, answer) for _, response, answer in pairs]
            figures |= show(kind, pairs, found.tolist(), alone)
            if arguments.show:
                listed(kind, pairs, found.tolist(), alone)
    print(json.dumps(figures))


def read(files: list[Path]) -> list[list[str]]:
    """Read the bare references of each file that is there, or take some that are made up."""
    found = []
    for file in filter(Path.exists, files):
        if file.suffix == ".parquet":
            column = pq.read_table(file, columns=["reward_model"])["reward_model"]
            rows = sorted({str(row["ground_truth"]) for row in column.to_pylist()})
        else:
            rows = [json.loads(line)["answer"] for line in file.read_text().splitlines()]
        found.append([bare(str(row[0] if isinstance(row, list) else row)) for row in rows])
    return found or [list(MADE)]


def bare(answer: str) -> str:
    r"""Take an answer out of its list, the `\boxed{}` of its solution, and its dollars."""
    answer = answer.strip().removeprefix("['").removesuffix("']").replace("\\\\", "\\")
    start, depth = answer.rfind(r"\boxed{"), 1
    if start >= 0:
        for end in range(start + 7, len(answer)):
            depth += (answer[end] == "{") - (answer[end] == "}")
            if depth == 0:
                answer = answer[start + 7 : end]
                break
    return answer.strip().strip("$") if answer.count("$") <= 2 else answer.strip()


def responses(answer: str, reference: str) -> Iterator[Pair]:
    """Write an answer in each form that suits it; and the reference, in those that suit it."""
    for name, content in contents(answer):
        yield name, f"So we are done.\nThe answer is $\\boxed{{{content}}}$.", reference
    yield "nothing but a box", f"\\boxed{{{answer}}}", reference
    yield "no dollars", f"Hence \\boxed{{{answer}}}", reference
    yield "fbox", f"Hence $\\fbox{{{answer}}}$.", reference
    yield "a second box", f"Say \\boxed{{17}}. No, it is \\boxed{{{answer}}}", reference
    yield (
        "a box long before",
        f"Is it $\\boxed{{17}}$? {'No. ' * 30}It is $\\boxed{{{answer}}}$.",
        reference,
    )
    yield "words after", f"Thus $\\boxed{{{answer}}}$, as in case 2 of $n = 3$.", reference
    yield "no box", f"The final answer is ${answer}$.", reference
    box = f"It is $\\boxed{{{answer}}}$."
    yield "reference: list of one", box, f"['{reference}']"
    if INTEGER.fullmatch(reference) or DECIMAL.fullmatch(reference):
        yield "reference: unit", box, rf"{reference} \mathrm{{~cm}}"
    yield "reference: solution", box, f"We add $1$ and get $\\boxed{{{reference}}}$ in $2$ steps."
    if LIST.fullmatch(answer) and r"\pm" not in answer and r"\!" not in answer:
        boxes = " or ".join(f"$\\boxed{{{one.strip()}}}$" for one in answer.split(","))
        yield "a box for each value", f"They are {boxes}.", reference


def contents(answer: str) -> Iterator[tuple[str, str]]:
    """Write what a box may hold."""
    yield "as it is", answer
    yield "full stop", f"{answer}."
    yield "spaces", f" \\, {answer} \\;"
    yield "bold", f"\\mathbf{{{answer}}}"
    yield "boldsymbol", f"\\boldsymbol{{{answer}}}"
    yield "display style", f"\\displaystyle {answer}"
    if "$" not in answer:
        yield "dollars in the box", f"${answer}$"
    if "=" not in answer and "," not in answer and not WORDS.fullmatch(answer):
        yield "x =", f"x = {answer}"
        yield "=", f"= {answer}"
    if r"\frac" in answer:
        yield "dfrac", answer.replace(r"\frac", r"\dfrac")
    if "-" in answer:
        yield "Unicode minus", answer.replace("-", "\u2212")
    if words := WORDS.fullmatch(answer):
        yield "words in bold", f"\\textbf{{{words[1]}}}"
        yield "words in capitals", f"\\text{{{words[1].upper()}}}"
    yield from numbers(answer)


def numbers(answer: str) -> Iterator[tuple[str, str]]:
    """Write a number in digits, in powers of ten, with units."""
    if found := FRACTION.fullmatch(answer):
        value = Fraction(int(found[2]), int(found[3]))
        yield "slash", f"{found[1]}{found[2]}/{found[3]}"
        if value.denominator in (2, 4, 5, 8, 10, 20, 25):
            yield "decimals", f"{found[1]}{float(value)}"
    if found := SCIENTIFIC.fullmatch(answer):
        digits, power = found.groups()
        yield "E", f"{digits}E{power}"
        yield "times", f"{digits} \\times 10^{{{power}}}"
        yield "cdot", f"{digits}\\cdot 10^{{{power}}}"
        yield "asterisk", f"{digits}*10^{power}" if power.isdigit() else f"{digits}*10^({power})"
        yield "power and unit", f"{digits} \\times 10^{{{power}}} \\text{{ erg/s}}"
    if not INTEGER.fullmatch(answer) and not DECIMAL.fullmatch(answer):
        return
    yield "text", f"\\text{{{answer}}}"
    yield "approx", f"\\approx {answer}"
    yield "unit", f"{answer} \\text{{ cm}}"
    yield "units", f"{answer}\\ \\mathrm{{kg}}\\,\\mathrm{{m}}^{{-3}}"
    yield "unit in words", f"{answer} units"
    if DECIMAL.fullmatch(answer):
        yield "trailing zero", f"{answer}0"
    digits = answer.lstrip("-")
    if INTEGER.fullmatch(answer) and len(digits) > 3:
        for name, mark in (("comma", ","), ("thin space", r"\,"), ("braces", "{,}"), ("!", r",\!")):
            groups = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", lambda _, mark=mark: mark, digits)
            yield f"groups: {name}", answer.replace(digits, groups)
        yield (
            "scientific",
            f"{answer[: -len(digits)]}{digits[0]}.{digits[1:]} \\times 10^{{{len(digits) - 1}}}",
        )


def wrong_answers(answer: str, every: list[str], rng: random.Random) -> Iterator[str]:
    """Change an answer so that it is wrong; and take another problem's."""
    if found := next((kind for kind in (INTEGER, DECIMAL) if kind.fullmatch(answer)), None):
        yield re.sub(r"\d(?=\D*$)", lambda d: str((int(d[0]) + 1) % 10), answer)
        if float(answer):
            yield f"{answer}0" if found is INTEGER else str(10 * float(answer))
            yield answer.removeprefix("-") if answer.startswith("-") else f"-{answer}"
    if found := FRACTION.fullmatch(answer):
        if found[2] not in ("0", found[3]):
            yield f"{found[1]}\\frac{{{found[3]}}}{{{found[2]}}}"
            yield f"{'' if found[1] else '-'}\\frac{{{found[2]}}}{{{found[3]}}}"
        yield f"{found[1]}\\frac{{{int(found[2]) + 1}}}{{{found[3]}}}"
    if found := SCIENTIFIC.fullmatch(answer):
        yield f"{found[1]}e{int(found[2]) + 1}"
        yield f"{found[1]}e{-int(found[2])}" if int(found[2]) else "2e1"
        yield f"{float(found[1]) + 0.1:g}e{found[2]}"
    if LIST.fullmatch(answer):
        yield answer.rpartition(",")[0]
    if (found := TUPLE.fullmatch(answer)) and found[1].strip() != found[2].strip():
        yield f"({found[2]},{found[1]})"
    others = [
        other for other in rng.sample(every, min(len(every), 8)) if value(other) != value(answer)
    ]
    yield from others[:2]


def misreadings(answer: str, rng: random.Random) -> Iterator[Pair]:
    """Make wrong answers that become right if a sign is overlooked."""
    found = []
    if matrix := MATRIX.fullmatch(answer):
        rows = [row.split("&") for row in matrix[2].split(r"\\")]
        entries = [entry.strip() for row in rows for entry in row]
        permuted = rng.sample(entries, len(entries))
        if permuted != entries:
            cells = iter(permuted)
            body = r" \\ ".join(" & ".join(next(cells) for _ in row) for row in rows)
            found.append(("matrix permuted", matrix[1] + body + matrix[3], answer))
    if (pair := TUPLE.fullmatch(answer)) and pair[1].strip() != pair[2].strip():
        found.append(("tuple as a set", rf"\{{{pair[1]}, {pair[2]}\}}", answer))
        found.append(("half-open interval", f"[{pair[1]}, {pair[2]})", answer))
    if INTEGER.fullmatch(answer):
        found += [
            ("letter", f"{answer}k", answer),
            ("bold letter", rf"\mathbf{{{answer}k}}", answer),
            ("unsolved equation", f"2x = {answer}", answer),
            ("another unit", rf"{answer} \text{{ m}}", rf"{answer} \text{{ cm}}"),
            ("cents for dollars", rf"{answer} \text{{ cents}}", rf"\${answer}"),
            ("another base", f"{answer}_9", f"{answer}_8"),
        ]
        if len(answer) in (2, 3) and answer.isdigit():
            found.append(("factorial", f"{answer}!", answer))
            found.append(("a space inside", f"{answer[0]} {answer[1:]}", answer))
    for name, content, reference in found:
        yield name, f"It is $\\boxed{{{content}}}$.", reference


def value(answer: str) -> str:
    """Return an answer without what can be left out of it."""
    text = re.sub(r"\\text|\\mathrm|\^\\circ|[xy]\s*=|\\%|\\\$|[\s{}$,\\]", "", answer)
    try:
        return str(Fraction(text))
    except (ValueError, ZeroDivisionError):
        return text


def by_math_verify(response: str, reference: str) -> bool:
    """Grade as Math-Verify's documentation does."""
    gold = reference if r"\boxed" in reference else f"\\boxed{{{reference}}}"
    try:
        return bool(verify(parse(gold), parse(response)))
    except RecursionError:
        return False


def show(kind: str, pairs: list[Pair], ours: list[bool], alone: list[bool]) -> dict[str, float]:
    """Print the accepted of each form; return the totals."""
    counts: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for (name, _, _), *verdicts in zip(pairs, ours, alone, strict=True):
        counts[name].append((verdicts[0], verdicts[1]))
    table = Table(
        "form", "answers", "Rollwise", "Math-Verify alone", title=f"accepted {kind} answers"
    )
    for name, verdicts in counts.items():
        table.add_row(
            name, str(len(verdicts)), *(str(sum(column)) for column in zip(*verdicts, strict=True))
        )
    shares = [sum(verdicts) / len(pairs) for verdicts in (ours, alone)]
    table.add_row("all", str(len(pairs)), *(f"{share:.2%}" for share in shares), style="bold")
    Console().print(table)
    return {
        f"{kind}_accepted": shares[0],
        f"{kind}_accepted_by_math_verify": shares[1],
        kind: len(pairs),
    }


def listed(kind: str, pairs: list[Pair], ours: list[bool], alone: list[bool]) -> None:
    """Print the falsely graded, and who does so."""
    for (name, response, answer), first, second in zip(pairs, ours, alone, strict=True):
        if (kind == "wrong") == first or (kind == "wrong" and second):
            print(
                f"{kind} [{name}] ours {first}, Math-Verify {second}: "
                f"{response[-90:]!r} for {answer!r}"
            )


if __name__ == "__main__":
    main()
