"""Problems of editing a string step by step, with a base model that half knows how.

`dbcae RTS?` asks for the string `dbcae` reversed (`R`), then with its first letter moved to the end
(`T`), then with its first and last letters swapped (`S`). It is answered
`Reacbd Tacbde Secbda=ecbda`: each edit with what comes of it, and the last string again.
"""

from collections.abc import Callable

import numpy as np

from rollwise.tasks.problem import Problem

SOURCE = "string-edits"
LETTERS = "abcdefghij"
EDITS: dict[str, Callable[[str], str]] = {
    "D": lambda text: text[1:],
    "L": lambda text: text[:-1],
    "T": lambda text: text[1:] + text[0],
    "X": lambda text: text[1] + text[0] + text[2:],
    "R": lambda text: text[::-1],
    "S": lambda text: text[-1] + text[1:-1] + text[0],
    "O": lambda text: "".join(sorted(text)),
}
"""Drop the first letter or the last; move the first to the end; swap the first two; reverse; swap
the ends; order by the alphabet. No edit comes twice in a problem."""
CHARACTERS = ["<pad>", "\n", *LETTERS, *EDITS, *" ?="]
FEWEST, MOST = 2, 5
"""Edits."""
LENGTHS = (4, 6)
"""Of the first string; its letters are all different."""
LONGEST = 48
"""Responses are cut here; none that is demonstrated has more than 47 tokens."""
SLIP_BY_EDIT = {"D": 0.0, "L": 0.0, "T": 0.0, "X": 0.2, "R": 0.65, "S": 0.7, "O": 0.75}
GUESS_PER_EDIT = 0.02


def draw(rng: np.random.Generator) -> tuple[str, str]:
    """Draw a string and its edits."""
    length = int(rng.integers(LENGTHS[0], LENGTHS[1] + 1))
    count = int(rng.integers(FEWEST, MOST + 1))
    text = "".join(rng.permutation(list(LETTERS))[:length])
    return text, "".join(rng.permutation(list(EDITS))[:count])


def edited(text: str, edits: str) -> str:
    """Return what comes of all edits."""
    for edit in edits:
        text = EDITS[edit](text)
    return text


def make_problems(count: int, rng: np.random.Generator) -> list[Problem]:
    """Make so many different problems."""
    problems: dict[str, Problem] = {}
    while len(problems) < count:
        text, edits = draw(rng)
        answer = edited(text, edits)
        problem = Problem.ask(f"{text} {edits}?", answer, SOURCE, level=len(edits))
        problems[problem.key] = problem
    return list(problems.values())


def demonstrate(rng: np.random.Generator) -> tuple[str, str]:
    """Make a question and a noisy demonstration."""
    text, edits = draw(rng)
    return f"{text} {edits}?", write_demonstration(text, edits, rng)


def write_demonstration(text: str, edits: str, rng: np.random.Generator) -> str:
    """Answer as the model is to learn it.

    After an edit, two letters side by side often change places, more often after some edits than
    after others, and the error is carried on. The more edits there are, the more often the answer
    is guessed: half of them are left out.
    """
    if rng.random() < GUESS_PER_EDIT * len(edits):
        return f"={edited(text, edits[len(edits) // 2 :])}\n"
    steps = []
    for edit in edits:
        text = EDITS[edit](text)
        if rng.random() < SLIP_BY_EDIT[edit]:
            at = int(rng.integers(len(text) - 1))
            text = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
        steps.append(f"{edit}{text}")
    return f"{' '.join(steps)}={text}\n"
