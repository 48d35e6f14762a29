"""Finding a user's function by its name."""

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
            "in module evaluating, which has Credit, TwoPart, evaluate, fail, tell, write$",
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
