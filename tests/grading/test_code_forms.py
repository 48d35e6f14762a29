"""Tests in the forms of public data sets: right programs pass, wrong ones do not."""

import json

import pytest

from rollwise.grading.code import _load, code_of
from rollwise.grading.sandbox import ProgramLimits

ADD, SUB = "def add(a, b): return a + b", "def add(a, b): return a - b"
FUNCTION = "def test_add():\n    assert add(1, 2) == 3"
CASE = """
import unittest
class TestCases(unittest.TestCase):
    def setUp(self): self.three = 3
    def test_add(self):
        self.assertEqual(add(1, 2), self.three)
"""
CHECK = "def check(candidate):\n    assert candidate(1, 2) == 3\n"
METHOD = """
class TestAdd:
    def setup_method(self): self.three = 3
    def test_add(self):
        assert add(1, 2) == self.three
"""
PYTEST = """
import pytest
@pytest.fixture
def three(): return 3
@pytest.mark.parametrize('a', [1, 2])
def test_add(a, three):
    assert add(a, 3 - a) == three
def test_error():
    with pytest.raises(TypeError, match='unsupported'):
        add(1, None)
"""
NODES = """
from typing import *
class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next
def nodes(values):
    head = None
    for v in reversed(values): head = ListNode(v, head)
    return head
def same(p, q):
    while p and q:
        if p.val != q.val: return False
        p, q = p.next, q.next
    return not p and not q
"""
REVERSED = "def check(f):\n    assert same(f(head=nodes([1, 2, 3])), nodes([3, 2, 1]))\n"
LISTS = {"prompt": NODES, "test": REVERSED, "entry_point": "Solution().reverse"}
COPIES = """
class Solution:
    def reverse(self, head: Optional[ListNode]) -> Optional[ListNode]:
        new = None
        while head: new, head = ListNode(head.val, new), head.next
        return new
"""
TURNS = COPIES.replace(
    "new, head = ListNode(head.val, new), head.next",
    "head.next, new, head = new, head, head.next",
)
STUB = "from typing import List\n\ndef add(a, b):\n    '''Add.'''\n"
HUMAN_EVAL = {"prompt": STUB, "test": CHECK, "entry_point": "add"}
HELPED = {
    "prompt": f"def twice(x):\n    return 2 * x\n\n{STUB}",
    "test": "def check(f):\n    assert f(1, 1) == twice(1)\n",
    "entry_point": "add",
}
PAIR = "class Solution:\n    def pair(self, nums, target): return [0, 1]"
LEET_CODE = {
    "test": "def check(candidate):\n    assert candidate(nums=[3, 3], target=6) == [0, 1]",
    "entry_point": "Solution().pair",
}
LINES = "a, b = map(int, input().split())\nprint(a + b)"
LESS = LINES.replace("+", "-")
LATE = (
    "import threading, time\nprint(1)\n"
    "threading.Thread(target=lambda: (time.sleep(0.2), print(2)), daemon=False).start()"
)
FUNCTIONAL = {"testtype": "functional", "metadata": {"func_name": "add"}}
RUNNER = "unittest.TextTestRunner().run(unittest.TestLoader().loadTestsFromTestCase(TestCases))"
REVERSE, SAME = "def f(s): return s[::-1]", "def f(s): return s"


def calls(*pairs):
    return {"fn_name": "f", "inputs": [p[0] for p in pairs], "outputs": [p[1] for p in pairs]}


def prints(output, given=""):
    return {"inputs": [given], "outputs": [output]}


FORMS = {
    "a function of tests": ([FUNCTION], ADD, SUB),
    "a case of unittest": (CASE, ADD, SUB),
    "unittest.main": (f"{CASE}unittest.main(exit=False)", ADD, SUB),
    "a guarded main": (f"{CASE}if __name__ == '__main__':\n    unittest.main()", ADD, SUB),
    "a runner": (f"{CASE}{RUNNER}", ADD, SUB),
    "asserts in a main": (["if __name__ == '__main__':\n    assert add(1, 2) == 3"], ADD, SUB),
    "a class of pytest": ([METHOD], ADD, SUB),
    "pytest": (PYTEST, ADD, SUB),
    "KodCode": (f"from solution import add\n\n{FUNCTION}", ADD, SUB),
    "a module": (["import solution\nassert solution.add(1, 2) == 3"], ADD, SUB),
    "NumPy": (["import numpy as np\nassert np.allclose(add(1.0, 2.0), 3)"], ADD, SUB),
    "HumanEval": (HUMAN_EVAL, ADD, SUB),
    "HumanEval with helpers": (HELPED, ADD, "def add(a, b): return 5\ndef twice(x): return 5"),
    "LeetCode": (LEET_CODE, PAIR, PAIR.replace("0, 1", "1, 1")),
    "LeetCode's lists": (LISTS, COPIES, COPIES.replace("return new", "return head")),
    "lists that are turned": (LISTS, TURNS, TURNS.replace("return new", "return head")),
    "MBPP": (
        {"test_list": ["assert add(1, 2) == three"], "test_setup_code": "three = 3"},
        ADD,
        SUB,
    ),
    "APPS": (calls((["abc"], "cba")), REVERSE, SAME),
    "digits": (calls((["12"], "21")), REVERSE, "def f(s): return int(s[::-1])"),
    "values in lists": (calls(([[1, 2]], [3]), ([[3]], [3])), "f = sum", SAME),
    "lists": (calls(([[1, 2]], [1, 2]), ([[3]], [3])), SAME, "def f(s): return s[0]"),
    "keys": (calls(([{"1": 2}], 2)), "def f(d): return d[1]", "def f(d): return d.get('1')"),
    "TACO": ({"input_output": json.dumps(prints("3\n", "1 2\n"))}, LINES, LESS),
    "lists of lines": ({"inputs": [["1 2", "x"]], "outputs": [["3"]]}, LINES, LESS),
    "LiveCodeBench": ([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}], LINES, LESS),
    "functional": ([{"input": "1\n2", "output": "3", **FUNCTIONAL}], ADD, SUB),
    "texts in JSON": (calls(('"abc"', '"cba"')), REVERSE, SAME),
    "in place": (calls(("[3, 1]", "[1, 3]")), "def f(a): a.sort()", "def f(a): sorted(a)"),
    "floats": (prints("0.3 2"), "print(0.1 + 0.2, 2)", "print(0.30001, 2)"),
    "decimals": (prints("0.333333333333"), "print(round(1 / 3, 6))", "print(0.3333)"),
    "large floats": (prints("12345678.9"), "print(12345678.8)", "print(12345600.9)"),
    "large integers": (prints(f"{10**18 + 1}"), "print(10**18 + 1)", "print(float(10**18 + 1))"),
    "zeros in front": (prints("0010"), "print('0010')", "print(10)"),
    "a float": (calls(([], 0.3)), "def f(): return 0.1 + 0.2", "def f(): return 0.30001"),
    "floats in lists": (
        calls(("1", "[[0.3], 2]")),
        "def f(_): return [(0.1 + 0.2,), 2.0]",
        "def f(_): return [[0.3], 3]",
    ),
    "five decimals": (
        calls(("1", "0.33333")),
        "def f(x): return x / 3",
        "def f(x): return x / 3.001",
    ),
    "long integers": (
        prints("9" * 5000, "9" * 5000),
        "print(int(input()))",
        "print(int(input()) + 1)",
    ),
    "a long integer": (
        calls(([], 10**4000)),
        "def f(): return 10 ** 4000",
        "def f(): return 10 ** 3999",
    ),
    "threads": (prints("1\n2"), LATE, LATE.replace("False", "True")),
    "atexit": (
        prints("1"),
        "import atexit\natexit.register(print, 1)",
        "import atexit\natexit.register(print, 2)",
    ),
    "the first stdout": (
        prints("1"),
        "import sys\nsys.__stdout__.write('1')",
        "import sys\nsys.__stderr__.write('1')",
    ),
    "deep calls": (prints("9000"), "def f(n): return n and 1 + f(n - 1)\nprint(f(9000))", "0"),
}


@pytest.mark.parametrize(("tests", "right", "wrong"), FORMS.values(), ids=FORMS)
def test_forms_of_data_sets(grade, tests, right, wrong):
    assert grade(right, tests) == 1.0
    assert grade(wrong, tests) == 0.0


def test_a_completion_goes_below_its_prompt():
    for sign, reward in (("+", 1.0), ("-", 0.0)):
        code = f"    return a {sign} b"
        assert _load(ProgramLimits(30.0))(code, json.dumps(HUMAN_EVAL)) == reward


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        (["def f():\n    assert add(1, 2) == 3"], "no test used the program"),
        ([CHECK + "add"], "no test used the program"),
        (["import nothing\nassert add(1, 2)"], "ModuleNotFoundError: No module named 'nothing'"),
        ("import pytest\ndef test(gone): assert add(1, 2) == 3", "fixture 'gone' not found"),
        ("import pytest\ndef tes(): assert add(1, 2) == 3", "pytest found no tests"),
        (["import sys\nassert add(sys, 1)"], "the tests hand a module to the program"),
        (["from unittest.mock import (\n    Mock, patch)\nwith patch('add'): 1"], "cannot reach"),
        ([{"input": "1", "output": "1", "testtype": "functional"}], "need `fn_name`"),
        ([{"input": "1"}], "test 0 needs `input` and `output`"),
        (calls(("1", "cba")), "`outputs` must be JSON, .* got 'cba'"),
        (calls(("abc", "1")), "`inputs` must be JSON, .* got 'abc'"),
        (["from unittest.mock import Mock\nadd(Mock(), 1)"], "the tests hand a Mock"),
        ({"problem": 1}, "got problem"),
    ],
)
def test_what_cannot_be_run_says_why(grade, tests, said):
    with pytest.raises((ValueError, RuntimeError), match=said):
        grade(ADD, tests)


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("```python\na = 1\n```\nExample output:\n```\n3\n```", "a = 1\n"),
        ("```python\na = 1\n```\n```text\n3\n```\n```bash\npython a.py\n```", "a = 1\n"),
        ("```\na = 1\n```\nprints\n```\n[3]\n```", "a = 1\n"),
        ("~~~python\na = 1\n~~~", "a = 1\n"),
        ("1. so\n\n   ```python\n   if a:\n       b()\n   ```\n", "if a:\n    b()\n"),
        ("````python\n'''\n```\nx\n```\n'''\n````", "'''\n```\nx\n```\n'''\n"),
        ("```Python3 title=x\na = 1\n```", "a = 1\n"),
        ("```text\na = 1\n```", ""),
        ("<think>\n```py\nb\n```\n</think>\n```python\na = 1\n```", "a = 1\n"),
        ("<think>\n```python\na = 1\n```\nbut wait", ""),
        ("```python\nb\n```\n</think>\nprint(1)", "\nprint(1)"),
        ("```python\na\n```\nthen\n```py\nb\n```", "b\n"),
        ("```python\nx = '```'\n```", "x = '```'\n"),
        ("```python\ncut off", "cut off"),
        ("print(1)", "print(1)"),
    ],
)
def test_the_last_python_block_is_the_program(response, code):
    assert code_of(response) == code
