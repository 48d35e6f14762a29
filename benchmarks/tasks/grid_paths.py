"""Problems of finding the way through a small maze, with a base model that half knows how.

The cells of a grid of 5 by 5 are called `a` to `y`, row by row. `a>l abcdglq?` asks for the way
from `a` to `l` through the open cells `abcdglq`. The open cells form a tree, so there is only one.
It is answered `abcd<bgl=abgl`: a search that comes to a dead end at `d` and goes on from `b`,
then the way itself.
"""

import numpy as np

from rollwise.tasks.problem import Problem

SOURCE = "grid-paths"
SIDE = 5
CELLS = "abcdefghijklmnopqrstuvwxy"
CHARACTERS = ["<pad>", "\n", *CELLS, *" >?<="]
SHORTEST, LONGEST_WAY = 3, 11
"""Cells of a way, its ends included."""
LONGEST = 48
"""Tokens of the longest response."""
NEIGHBOURS = [
    [
        other
        for other in range(SIDE**2)
        if abs(other // SIDE - cell // SIDE) + abs(other % SIDE - cell % SIDE) == 1
    ]
    for cell in range(SIDE**2)
]
WRONG_TURN = 0.4
LEAP = 0.6
SLIP_BY_ROW = [0.0, 0.0, 0.3, 0.6, 0.7]
GUESS_PER_CELL = 0.06
"""Of each cell of a way beyond the shortest."""


def draw(rng: np.random.Generator) -> tuple[set[int], list[int]]:
    """Draw the open cells, and a way through them; each length is about as likely."""
    while True:
        open_cells = draw_tree(rng)
        start = int(rng.choice(sorted(open_cells)))
        ways = ways_from(start, open_cells)
        length = int(rng.integers(SHORTEST, LONGEST_WAY + 1))
        fitting = [way for way in ways.values() if len(way) == length]
        if fitting:
            return open_cells, fitting[int(rng.integers(len(fitting)))]


def draw_tree(rng: np.random.Generator) -> set[int]:
    """Open one cell after another, each beside exactly one that is open, as long as it goes."""
    order = rng.permutation(SIDE**2).tolist()
    beside = [0] * SIDE**2
    open_cells: set[int] = set()
    following: int | None = order[0]
    while following is not None:
        open_cells.add(following)
        for cell in NEIGHBOURS[following]:
            beside[cell] += 1
        candidates = (c for c in order if beside[c] == 1 and c not in open_cells)
        following = next(candidates, None)
    return open_cells


def ways_from(start: int, open_cells: set[int]) -> dict[int, list[int]]:
    """Return the way to each cell."""
    ways = {start: [start]}
    ends = [start]
    for cell in ends:  # grows
        for other in NEIGHBOURS[cell]:
            if other in open_cells and other not in ways:
                ways[other] = [*ways[cell], other]
                ends.append(other)
    return ways


def write(cells: list[int]) -> str:
    """Write cells by their letters."""
    return "".join(CELLS[cell] for cell in cells)


def write_question(open_cells: set[int], way: list[int]) -> str:
    """Ask for the way between its ends."""
    return f"{CELLS[way[0]]}>{CELLS[way[-1]]} {write(sorted(open_cells))}?"


def make_problems(count: int, rng: np.random.Generator) -> list[Problem]:
    """Make so many different problems."""
    problems: dict[str, Problem] = {}
    while len(problems) < count:
        open_cells, way = draw(rng)
        question = write_question(open_cells, way)
        problem = Problem.ask(question, write(way), SOURCE, level=len(way))
        problems[problem.key] = problem
    return list(problems.values())


def demonstrate(rng: np.random.Generator) -> tuple[str, str]:
    """Make a question and a noisy demonstration."""
    open_cells, way = draw(rng)
    return write_question(open_cells, way), write_demonstration(open_cells, way, rng)


def write_demonstration(open_cells: set[int], way: list[int], rng: np.random.Generator) -> str:
    """Answer as the model is to learn it.

    At a fork the search often takes a wrong turn, and from a dead end it often leaps through a
    wall instead of going back. Elsewhere it walks through a wall the more often, the lower the row.
    The longer the way is, the more often it is guessed.
    """
    if rng.random() >= GUESS_PER_CELL * (len(way) - SHORTEST):
        searched = search(open_cells, way, rng)
        if len(searched) < LONGEST:
            return f"{searched}\n"
    return f"={write(straight(way[0], way[-1], rng))}\n"


def search(open_cells: set[int], way: list[int], rng: np.random.Generator) -> str:
    """Search for the way, with mistakes."""
    goal, path, seen, text = way[-1], [way[0]], {way[0]}, write(way[:1])
    while path[-1] != goal:
        cell = path[-1]
        onward = [c for c in NEIGHBOURS[cell] if c in open_cells and c not in seen]
        right = [c for c in onward if c in way]
        wrong = [c for c in onward if c not in way]
        stuck = not onward
        if rng.random() < (LEAP if stuck else SLIP_BY_ROW[cell // SIDE]):
            closer = nearer(cell, goal)
            path.append(closer[int(rng.integers(len(closer)))])
        elif stuck:
            text += "<"
            while len(path) > 1 and not any(
                c in open_cells and c not in seen for c in NEIGHBOURS[path[-1]]
            ):
                path.pop()
            text += CELLS[path[-1]]
            if not any(c in open_cells and c not in seen for c in NEIGHBOURS[path[-1]]):
                break
            continue
        elif wrong and (not right or rng.random() < WRONG_TURN):
            path.append(wrong[int(rng.integers(len(wrong)))])
        else:
            path.append(right[0])
        text += CELLS[path[-1]]
        seen.add(path[-1])
        if len(text) > LONGEST:
            break
    return f"{text}={write(path)}"


def nearer(cell: int, goal: int) -> list[int]:
    """Return the neighbours of a cell that are nearer to the goal, whether they are open or not."""
    return [c for c in NEIGHBOURS[cell] if distance(c, goal) < distance(cell, goal)]


def distance(cell: int, goal: int) -> int:
    """Return how far apart two cells are, walls aside."""
    return abs(cell // SIDE - goal // SIDE) + abs(cell % SIDE - goal % SIDE)


def straight(start: int, goal: int, rng: np.random.Generator) -> list[int]:
    """Go straight from one cell to another, walls or not."""
    path = [start]
    while path[-1] != goal:
        closer = nearer(path[-1], goal)
        path.append(closer[int(rng.integers(len(closer)))])
    return path
