"""What tests of a program reach: right programs pass, and a change that matters fails."""

import pytest

STACK = """
class EmptyError(Exception):
    def __init__(self, size):
        super().__init__(f"empty: {size}")
        self.size = size
class Stack:
    limit = 3
    def __init__(self, *items): self._items = list(items)
    def push(self, item):
        self._items.append(item)
        return self
    def pop(self):
        if not self._items: raise EmptyError(0)
        return self._items.pop()
    def __len__(self): return len(self._items)
    def __iter__(self): return iter(self._items)
    def __contains__(self, item): return item in self._items
    def __getitem__(self, i): return self._items[i]
    def __eq__(self, other): return isinstance(other, Stack) and self._items == other._items
    def __add__(self, other): return Stack(*self, *other)
    def __repr__(self): return f"Stack{tuple(self._items)}"
    def __enter__(self): return self
    def __exit__(self, *error): self._items.clear()
    @property
    def top(self): return self._items[-1]
    @classmethod
    def of(cls, items): return cls(*items)
    @staticmethod
    def name(): return "stack"
"""
SHAPES = """
from abc import ABC, abstractmethod
from collections import namedtuple, deque, Counter, defaultdict, OrderedDict
from dataclasses import dataclass
from enum import Enum, IntEnum
from fractions import Fraction
class Shape(ABC):
    @abstractmethod
    def area(self): ...
class Square(Shape):
    def __init__(self, side): self.side = side
    def area(self): return self.side ** 2
class Color(Enum):
    RED = 1
    BLUE = 2
class Level(IntEnum):
    LOW = 1
Point = namedtuple("Point", "x y")
@dataclass(frozen=True)
class Vector:
    x: int
    y: int
    def __add__(self, other): return Vector(self.x + other.x, self.y + other.y)
    def __mul__(self, k): return Vector(self.x * k, self.y * k)
    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5
    def __lt__(self, other): return abs(self) < abs(other)
class Tags(list):
    def first(self): return self[0]
def kinds(): return [b"x", 1j, Fraction(1, 2), deque([1, 2]), Counter("aab"), {1: {2}}, range(3)]
def groups(): return defaultdict(list, {"a": [1]}), OrderedDict(b=2)
def tags(*items): return Tags(items)
"""
TOOLS = """
import functools
def apply(function, items): return [function(item) for item in items]
def compose(*functions): return lambda x: functools.reduce(lambda y, f: f(y), functions, x)
def counter():
    count = 0
    def step():
        nonlocal count
        count += 1
        return count
    return step
def countdown(n):
    while n: yield n; n -= 1
def total(items): return sum(items)
def sort_in_place(items): items.sort()
def rotate(matrix): matrix[:] = [list(row) for row in zip(*matrix[::-1])]
def fill(cache, key): cache.setdefault(key, []).append(1)
def logged(function):
    @functools.wraps(function)
    def inner(*args): return ("called", function(*args))
    return inner
def parse(text):
    import json
    if not text: raise ValueError("no text", 3)
    return json.loads(text)
def greet(): print("hello")
def first_lines(file): return [line.strip() for line in file]
async def later(x):
    import asyncio
    await asyncio.sleep(0)
    return x + 1
MAX = 7
"""
REACHED = {
    STACK: r"""
# append(item) -> append(0)
s = Stack(1)
s.push(2).push(3)
assert len(s) == 3 and s.pop() == 3

# EmptyError(0) -> EmptyError(1)
try:
    Stack().pop()
except EmptyError as error:
    assert str(error) == 'empty: 0' and error.size == 0
else:
    assert False

# iter(self._items) -> iter([])
assert list(Stack(1, 2)) == [1, 2] and 2 in Stack(1, 2)[1:] + [3]

# limit = 3 -> limit = 2
assert Stack(1).top == 1 and Stack.limit == 3 and Stack.name() == 'stack'

# cls(*items) -> cls()
assert Stack.of([1, 2]) == Stack(1, 2) != Stack(3)

# f"Stack -> f"stack
assert repr(Stack(1)) == str(Stack(1)) == f'{Stack(1)}' == 'Stack(1,)'

# self._items.clear() -> pass
with Stack(1) as s:
    assert s.top == 1
assert not list(s)

# class Stack: -> def Stack(): return 1\nclass S:
s = Stack()
assert isinstance(s, Stack) and type(s) is Stack and type(s).__name__ == 'Stack'

# limit = 3 -> other = 3
s = Stack()
s.note = [1]
assert s.note == [1] and vars(s)['note'] == [1] and not hasattr(s, 'other')

# Stack(*self, *other) -> Stack(*self)
assert Stack(1) + Stack(2) == Stack(1, 2)
""",
    SHAPES: r"""
# Square(Shape) -> Square
assert isinstance(Square(2), Shape) and issubclass(Square, Shape) and Square(2).area() == 4

# @abstractmethod -> @property
try:
    Shape()
except TypeError:
    pass
else:
    assert False

# BLUE = 2 -> BLUE = 3
assert Color.RED is Color(1)
assert Color['BLUE'].value == 2
assert [c.name for c in Color] == ['RED', 'BLUE']
assert Level.LOW + 1 == 2

# "x y" -> "y x"
p = Point(1, 2)
assert p == (1, 2) and p.y == 2 and p._replace(x=5).x == 5

# self.y * k -> self.y
v = Vector(3, 4)
assert v + v == v * 2 == Vector(6, 8)
assert abs(v) == 5
assert v < v * 2
assert len({v, Vector(3, 4)}) == 1

# frozen=True -> unsafe_hash=True
try:
    Vector(1, 2).x = 5
except AttributeError:
    pass
else:
    assert False

# {1: {2}} -> {1: [2]}
from collections import deque, Counter
from fractions import Fraction
assert kinds() == [b'x', 1j, Fraction(1, 2), deque([1, 2]), Counter('aab'), {1: {2}}, range(3)]

# b=2 -> b=3
assert groups() == ({'a': [1]}, {'b': 2})

# Tags(items) -> Tags(items[1:])
t = tags(1, 2)
assert t == [1, 2] and t.first() == 1
t.append(3)
assert t == [1, 2, 3] and len(t) == 3
""",
    TOOLS: r"""
# [function(item) -> [item
assert apply(lambda x: x + 1, [1, 2]) == [2, 3]
assert apply(len, ['ab']) == [2]
assert compose(str, len)(100) == 3

# count += 1 -> count = 1
c = counter()
assert (c(), c()) == (1, 2)

# n -= 1 -> n -= 2
g = countdown(2)
assert next(g) == 2 and list(g) == [1] and next(g, None) is None and iter(g) is g

# sum(items) -> max(items)
assert total(x * x for x in range(4)) == 14 and total(iter([1, 2])) == 3

# items.sort() -> sorted(items) and None
a = b = [3, 1, 2]
assert sort_in_place(a) is None
assert b == [1, 2, 3]

# [::-1] -> [:]
m = [[1, 2], [3, 4]]
row = m[0]
rotate(m)
assert m == [[3, 1], [4, 2]] and row == [1, 2]

# append(1) -> append(2)
d = {'a': [0]}
fill(d, 'a')
fill(d, 'b')
assert d == {'a': [0, 1], 'b': [1]}

# @functools.wraps(function) -> @functools.cache
@logged
def double(x): return 2 * x
assert double(2) == ('called', 4) and double.__name__ == 'double'

# no text -> none
try:
    parse('')
except ValueError as error:
    assert error.args == ('no text', 3)
else:
    assert False

# json.loads(text) -> int(text)
import json
try:
    parse('{')
except json.JSONDecodeError as error:
    assert 'line 1' in str(error)
else:
    assert False

# hello -> Hello
import io, contextlib
with contextlib.redirect_stdout(io.StringIO()) as f:
    greet()
assert f.getvalue() == 'hello\n'

# line.strip() -> line
import io
assert first_lines(io.StringIO('a\nb')) == ['a', 'b']

# x + 1 -> x
import asyncio
async def both(): return await asyncio.gather(later(1), later(2))
assert asyncio.run(later(1)) == 2 and asyncio.run(both()) == [2, 3]

# MAX = 7 -> MAX = 8
assert MAX == 7 and MAX + total([1]) == 8

# [function(item) -> [item
class Item:
    def __init__(self, n): self.n = n
assert apply(lambda item: item.n, [Item(1)]) == [1]
""",
}
"""Of each program, tests that it passes, and not with the change in the comment above them."""
CASES = [
    (code, test, *change.split(" -> "))
    for code, cases in REACHED.items()
    for change, _, test in (case.partition("\n") for case in cases.strip().split("\n\n"))
]


@pytest.mark.parametrize(("code", "test", "right", "wrong"), CASES)
def test_statements_reach_what_programs_have(grade, code, test, right, wrong):
    right, wrong = right.removeprefix("# "), wrong.replace("\\n", "\n")
    assert right in code
    assert grade(code, [test]) == 1.0
    assert grade(code.replace(right, wrong), [test]) == 0.0
