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
        "def score(response, answer):\n"
        "    from helper_of_mine import half\n"  # found only when called
        "    return half if response == answer else 0\n"
    )
    (here / "helper_of_mine.py").write_text("half = 0.5\n")
    with FunctionGrader("mine_with_helper:score", workers=1) as grader:
        assert grader.grade(["a", "b"], ["a", "a"]).tolist() == [0.5, 0.0]
        assert grader.failures == 0


@pytest.mark.parametrize("name", ["", "operator", "operator:", ":eq", "operator.eq"])
def test_a_name_without_its_two_parts(name):
    with pytest.raises(ConfigError, match=f"is named module:function, got '{name}'"):
        FunctionGrader(name)


def test_a_function_of_the_script_itself():
    with pytest.raises(ConfigError, match=r"'__main__:score': .* a module of its own"):
        FunctionGrader("__main__:score")


@pytest.mark.parametrize("name", ["no_such_module", "no_such_package.module", "json.no_such_part"])
def test_a_module_that_is_not_there(here, name):
    with pytest.raises(ConfigError) as error:
        FunctionGrader(f"{name}:score")
    missing = name if name.startswith("json") else name.partition(".")[0]
    assert str(error.value) == (
        f"'{name}:score': no module {missing!r} in {here} or on Python's path"
    )


def test_a_module_whose_own_import_is_missing_says_so(here):
    (here / "mine_without_friend.py").write_text("import no_such_friend\n")
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_friend'"):
        FunctionGrader("mine_without_friend:score")


def test_a_function_that_is_not_there_lists_those_that_are():
    with pytest.raises(ConfigError) as error:
        FunctionGrader("evaluating:evalate")
    assert str(error.value) == (
        "'evaluating:evalate': no 'evalate' in module evaluating, which has "
        "Credit, TwoPart, evaluate, fail, tell"
    )
    with pytest.raises(ConfigError, match="which has no public function"):
        FunctionGrader("keyword:score")


def test_a_name_that_is_no_function():
    with pytest.raises(ConfigError, match="'evaluating:LIMIT' is not callable: int"):
        FunctionGrader("evaluating:LIMIT")


@pytest.mark.parametrize("timeout", [0, -1.0, float("inf"), float("nan")])
def test_a_limit_that_is_none(timeout):
    with pytest.raises(ValueError, match=f"timeout must be above 0 .* got {timeout}"):
        FunctionGrader("operator:eq", timeout=timeout)


def test_less_than_one_worker():
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        FunctionGrader("operator:eq", workers=0)


@pytest.mark.parametrize("end", ["raise OSError('only one of me')", "os._exit(1)"])
def test_a_module_that_workers_cannot_import_is_an_error_not_a_reward(here, end):
    name = f"only_in_the_parent_{len(end)}"
    (here / f"{name}.py").write_text(
        "import os\n"
        f"if os.getpid() != {os.getpid()}:\n    {end}\n"
        "def score(response, answer):\n    return 1.0\n"
    )
    with (
        FunctionGrader(f"{name}:score", workers=1) as grader,
        pytest.raises(RuntimeError, match=r"workers cannot start: .*(only one|exit code 1)"),
    ):
        grader.grade(["a"], ["a"])


def test_a_slow_import_does_not_count_against_the_first_response(here):
    (here / "slow_in_the_worker.py").write_text(
        "import os, time\n"
        f"if os.getpid() != {os.getpid()}:\n    time.sleep(1.5)\n"
        "def score(response, answer):\n    return 1.0\n"
    )
    with FunctionGrader("slow_in_the_worker:score", timeout=1.0, workers=1) as grader:
        assert grader.grade(["a"], ["a"]).tolist() == [1.0]
