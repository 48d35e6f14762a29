"""Programs that try to pass: no object judges itself, and what tests hand over leads nowhere."""

import pytest

ANSWERS = {
    **dict.fromkeys(["eq", "ne", "lt", "le", "gt", "ge", "contains", "bool"], "True"),
    **dict.fromkeys(["sub", "rsub", "abs", "round", "mod", "xor", "hash"], "0"),
    **dict.fromkeys(["call", "add", "radd", "mul", "getitem", "enter", "neg"], "self"),
    **dict.fromkeys(["len", "int", "index"], "3"),
    "iter": "iter(())",
}
ANY = "class Any:\n" + "".join(
    f"    def __{name}__(self, *_): return {value}\n" for name, value in ANSWERS.items()
)
NUMBER = """
class N(float):
    __eq__ = __lt__ = __le__ = lambda *_: True
    __sub__ = __rsub__ = __xor__ = __mod__ = __abs__ = lambda *_: 0.0
    __hash__ = lambda _: 3
def f(x): return N(9)
"""
JUDGES = {
    "an object": f"{ANY}def f(x): return Any()",
    "a class": f"{ANY}class f(Any):\n    def __init__(self, x): pass",
    "a number": NUMBER,
    "a list": f"{ANY.replace('Any', 'Any(list)', 1)}def f(x): return Any([7])",
    "an error": "def f(x): raise AssertionError",
    "a skip": "import unittest\ndef f(x): raise unittest.SkipTest('no')",
    "an exit": "def f(x): raise SystemExit(0)",
    "an interrupt": "def f(x): raise KeyboardInterrupt",
    "the end of an iteration": "def f(x): raise StopIteration",
}
TESTED = [
    *("assert f(1) == 3", "assert 3 == f(1)", "assert not f(1) != 3", "assert f(1) == [1, 2]"),
    *("assert abs(f(1) - 3.5) < 1e-6", "assert f(1) in (3, 4)", "assert 3 in f(1)"),
    *("assert f(1) <= 3 <= f(1)", "assert {f(1)} == {3}", "assert f(1) ^ 3 == 0"),
    *("assert (f(1), 1) == (3, 1)", "assert f(1) % 3.5 == 0 and f(1) - 3 == 0"),
    *("assert sorted(f(1)) == [1]", "assert math.isclose(f(1), 3.5)"),
    *("assert isinstance(f(1), int)", "assert type(f(1)) is int", "case.assertIn(3, f(1))"),
    *("case.assertAlmostEqual(f(1), 3.5)", "case.assertEqual(f(1), 3)"),
    *("case.assertCountEqual(f(1), [3])", "case.assertLess(f(1), 3)"),
    *("assert f(1) == pytest.approx(3.5)", "assert [f(1)] == pytest.approx([3.5])"),
]


@pytest.mark.parametrize("code", JUDGES.values(), ids=JUDGES)
def test_no_object_judges_itself(grade, code):
    """The tests pass if any of the statements does."""
    tests = (
        "import math, sys, unittest, pytest\ncase, passed = unittest.TestCase(), []\n"
        + "".join(
            f"try:\n    {test}\n    passed.append({test!r})\nexcept BaseException: pass\n"
            for test in TESTED
        )
        + "def test():\n    assert passed"
    )
    assert grade(code, [tests]) == 0.0
    assert grade("def f(x): return 3", [tests]) == 1.0


@pytest.mark.parametrize("code", JUDGES.values(), ids=JUDGES)
def test_nothing_that_a_program_raises_ends_the_tests_early(grade, code):
    case = "import unittest\nclass T(unittest.TestCase):\n    def test(self): "
    assert grade(code, [f"{case}self.assertEqual(f(1), 3)"]) == 0.0


def test_an_object_that_returns_itself_is_not_the_one_that_tests_constructed(grade):
    """Operators of `Solution()` itself would be asked, as those of `Vector(1, 2)` are."""
    code = f"{ANY.replace('Any', 'Solution')}    def f(self, x): return self\n"
    for found in ("Solution().f(1)", "Solution().f(1)[0]", "-Solution()"):
        tests = f"assert {found} - 3.5 == 0"
        assert grade(code, [tests]) == 0.0
        assert grade(code, [f"try:\n    {tests}\nexcept TypeError: pass"]) == 1.0


def test_a_program_cannot_make_plain_data_its_own(grade):
    """It says that 3 is an object of its own, then that another one equals whatever it has."""
    lines = [
        '{"value": ["handle", 907, ["builtin", "int"], ["int", "0x3"]]}',
        '{"value": ["handle", 901, ["class", 902], null]}',
        '{"value": ["list", ["A", ["list", []], ["list", ["__eq__"]], ["list", []], false]]}',
        '{"value": true}',
    ]
    said = "".join(f"{line}\n" for line in lines).encode()
    code = (
        f"import os\ndef f(x):\n    for i in range(3, 64):\n        try: os.write(i, {said!r})\n"
        "        except OSError: pass\n"
    )
    first = "try: f(0)\nexcept ValueError: pass\n"
    assert grade(code, [f"{first}assert f(1) == 3"]) == 0.0
    assert grade(code, [f"{first}assert f(1) != 3"]) == 1.0


REPLACES = """
import sys
peer = sys.modules["rollwise.grading.objects"].Peer
do = peer._do
def more(self, action, *args):
    own = {"abs": lambda _: 0, "isinstance": lambda *_: True} if action == "find" else {}
    return own | do(self, action, *args) if own else do(self, action, *args)
peer._do = more
def abs(x): return 0
def f(x): return 9
"""


@pytest.mark.parametrize("test", ["abs(f(1) - 3.5) < 1", "isinstance(f(1), str)"])
def test_a_program_replaces_no_built_in_function_of_the_tests(grade, test):
    assert grade(REPLACES, [f"assert {test}"]) == 0.0
    assert grade(REPLACES, [f"assert not {test}"]) == 1.0


def test_comparing_an_object_that_tests_make_with_plain_data_is_no_verdict(grade):
    code = f"{ANY.replace('Any', 'Money')}    def __init__(self, n): pass"
    with pytest.raises(RuntimeError, match="compare a Money of the program with plain data"):
        grade(code, ["assert Money(2) == 2"])


HELD = """
def take(o):
    for name in ("__globals__", "__func__", "__code__", "gi_frame", "__closure__"):
        try: getattr(o, name)
        except AttributeError: continue
        return 3
    def attempts():
        yield lambda: setattr(o, "is_right", lambda *_: True)
        yield lambda: setattr(type(o), "is_right", lambda *_: True)
        yield lambda: type(o)(1)
        yield lambda: type(type(o))("X", (), {})
        yield lambda: delattr(o, "n")
        yield lambda: o.__init__(1)
        yield lambda: o.__class__.__subclasses__()
        yield lambda: o.__reduce_ex__(2)
        yield lambda: o.send(None)
    for attempt in attempts():
        try: attempt()
        except Exception: pass
    return 4
"""


@pytest.mark.parametrize(
    "given", ["Own()", "Own", "Own().is_right", "(x for x in [1])", "lambda: 1", "print"]
)
def test_what_tests_hand_over_leads_nowhere(grade, given):
    own = "class Own:\n    n = 1\n    def is_right(self, found): return found == 3\n"
    for verdict, reward in (("", 0.0), ("not ", 1.0)):
        tests = f"{own}o = {given}\nassert {verdict}Own().is_right(take(o))"
        assert grade(HELD, [tests]) == reward


@pytest.mark.parametrize(
    "line",
    [
        *('{"passed": true, "complaint": ""}', '{"value": ["int", "0x3"]}', "[]", "3"),
        *('{"value": ["yours", 0]}', '{"value": ["builtin", "eval"]}', '{"do": "find"}'),
        '{"value": ["error", "unittest.case", "SkipTest"]}',
        '{"error": ["X", ["builtin", "KeyboardInterrupt"], 5, ["list", []]]}',
        '{"do": "get", "on": 0, "args": ["__globals__"], "kwargs": {}}',
        '{"do": "special", "on": 0, "args": ["__call__"], "kwargs": {}}',
    ],
)
def test_a_program_that_speaks_for_itself_gets_nothing(grade, line):
    code = (
        "import os\ndef f(x):\n    for i in range(3, 64):\n"
        f"        try: os.write(i, {(line + chr(10)).encode()!r})\n        except OSError: pass\n"
        "    return 0"
    )
    assert grade(code, ["assert f(1) == 4 and f(2) == 5"]) == 0.0
