"""Finding a user's function by its name."""

import os
import sys

import pytest

from rollwise.errors import ConfigError
from rollwise.grading import FunctionGrader


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory; Python's path is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_a_module_in_the_current_directory_is_found_in_the_workers_too(here):
    (here / "mine_with_helper.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    from helper_of_mine import half\n"  # found only when called
        "    return half if solution_str == ground_truth else 0\n"
    )
    (here / "helper_of_mine.py").write_text("half = 0.5\n")
    with FunctionGrader("mine_with_helper:compute_score", workers=1) as grader:
        assert grader.grade(["a", "b"], ["a", "a"]).tolist() == [0.5, 0.0]
        assert grader.failures == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *((name, f"is named module:function, got '{name}'") for name in ("", "operator")),
        *((name, f"is named module:function, got '{name}'") for name in ("operator:", ":eq")),
        ("__main__:score", "'__main__:score': .* a module of its own"),
        ("no_such_module:f", "'no_such_module:f': no module 'no_such_module' in HERE or on Python"),
        ("no_such.part:f", "no module 'no_such' in HERE or on"),
        ("json.no_such_part:f", "no module 'json.no_such_part' in HERE or on"),
        (
            "evaluating:evalate",
            "no 'evalate' in module evaluating, which has Credit, TwoPart, evaluate, fail, tell, write$",
        ),
        ("keyword:score", "which has no public function"),
        ("evaluating:LIMIT", "'evaluating:LIMIT' is not callable: int"),
    ],
)
def test_a_name_of_no_function_is_refused(here, name, said):
    with pytest.raises(ConfigError, match=said.replace("HERE", str(here))):
        FunctionGrader(name)


def test_a_module_whose_own_import_is_missing_says_so(here):
    (here / "mine_without_friend.py").write_text("import no_such_friend\n")
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_friend'"):
        FunctionGrader("mine_without_friend:score")


@pytest.mark.parametrize("timeout", [0, -1.0, float("inf"), float("nan")])
def test_a_limit_that_is_none(timeout):
    with pytest.raises(ValueError, match=f"timeout must be above 0 .* got {timeout}"):
        FunctionGrader("operator:eq", timeout=timeout)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        FunctionGrader("operator:eq", workers=0)


def only_elsewhere(here, name, statement):
    """Write a module that does something more where workers import it."""
    (here / f"{name}.py").write_text(
        f"import os, time\nif os.getpid() != {os.getpid()}:\n    {statement}\n"
        "def score(response, answer):\n    return 1.0\n"
    )
    return f"{name}:score"


@pytest.mark.parametrize("end", ["raise OSError('only one of me')", "os._exit(1)"])
def test_a_module_that_workers_cannot_import_is_an_error_not_a_reward(here, end):
    name = only_elsewhere(here, f"only_in_the_parent_{len(end)}", end)
    with (
        FunctionGrader(name, workers=1) as grader,
        pytest.raises(RuntimeError, match=r"workers cannot start: .*(only one|exit code 1)"),
    ):
        grader.grade(["a"], ["a"])


def test_a_slow_import_does_not_count_against_the_first_response(here):
    name = only_elsewhere(here, "slow_in_the_worker", "time.sleep(1.5)")
    with FunctionGrader(name, timeout=1.0, workers=1) as grader:
        assert grader.grade(["a"], ["a"]).tolist() == [1.0]
