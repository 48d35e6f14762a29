"""The package from outside: light to import, its names, its commands, its example."""

import errno
import importlib
import os
import re
import runpy
import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

import rollwise
from rollwise.cli import main

HEAVY = {"torch", "pydantic", "transformers", "scipy", "rich", "pyarrow", "matplotlib", "jinja2"}

CONTRACT = {
    "rollwise": [
        *("Balanced", "PositiveFocused", "FixedCount", "Rounds", "RolloutSession", "Draw"),
        *("select_group", "advantages", "pass_at_k", "Uniform", "__version__"),
        *("train", "evaluate", "compare", "TrainResult", "StopRun"),
    ],
    "rollwise.grading": [
        *("CodeGrader", "EnvironmentGrader", "ExactGrader", "FunctionGrader", "MathGrader"),
        *("as_compute_score", "as_reward_function"),
    ],
    "rollwise.engines": ["BatchEngine", "Engine"],
    "rollwise.step": ["LostDraw", "Response", "StepRecipe", "run_session", "take_step"],
    "rollwise.prompts": ["PromptSampler", "Uniform"],
    "rollwise.reports": ["write_data_card", "write_evaluation_report", "write_report"],
    "rollwise.config": ["TrainConfig", "make_config"],
    "rollwise.errors": ["ConfigError", "DataError", "ModelError", "RollwiseError", "RunError"],
}


def python(*arguments):
    run = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, encoding="utf-8", check=True
    )
    return run.stdout


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("rollwise", HEAVY),
        ("rollwise.cli", HEAVY - {"rich"}),
        ("rollwise.tasks", {"torch", "transformers", "datasets", "pyarrow", "pandas"}),
    ],
)
def test_importing_it_loads_nothing_heavy(module, heavy):
    code = f"import sys, {module}; print(sorted({heavy!r} & set(sys.modules)))"
    assert python("-c", code).strip() == "[]"


def test_what_a_library_prints_itself_is_not_printed_again():
    code = """
import logging, sys
from rollwise.cli import main
logging.getLogger("library").addHandler(logging.StreamHandler(sys.stdout))
main(["report", "nowhere"])
for name in ("library.part", "other"):
    logging.getLogger(name).warning("said by %s", name)
"""
    found = [line.rstrip() for line in python("-c", code).splitlines()]
    assert found == ["said by library.part", "said by other"]


@pytest.mark.parametrize("module", CONTRACT)
def test_the_names_that_users_type_are_there(module):
    room = importlib.import_module(module)
    assert [name for name in CONTRACT[module] if not hasattr(room, name)] == []


def test_the_session_of_the_contract_runs():
    exit_rule = rollwise.Balanced(positives=2, negatives=2)
    schedule = rollwise.Rounds(size=8, rounds=4)
    session = rollwise.RolloutSession(["p"], exit_rule=exit_rule, schedule=schedule, seed=0)
    while draws := session.next_draws():
        for draw in draws:
            session.record(draw, reward=float(draw.index % 2), response="text")
    pool = session.pools["p"]
    assert (pool.positives, pool.negatives, pool.exit_reason) == (4, 4, "satisfied")
    group = rollwise.select_group(pool, size=4, strategy="balanced")
    values = rollwise.advantages(pool, group, objective="reference")
    assert values.tolist() == [-0.5, 0.5, -0.5, 0.5]
    found = rollwise.pass_at_k(drawn=16, correct=3, k=4)
    assert found == pytest.approx(1 - 13 * 12 * 11 * 10 / 43680)


def test_the_version_is_the_packages():
    assert rollwise.__version__ == version("rollwise")
    assert python("-m", "rollwise", "--version") == f"rollwise {version('rollwise')}\n"


def test_the_command_is_installed():
    (command,) = entry_points(group="console_scripts", name="rollwise")
    assert command.load() is main


class OutOfMemoryError(RuntimeError):
    """As torch's is for a device."""


def test_the_example_shows_the_method(root):
    """Four prompts, two steps: each line a prompt, with what is learnt from it."""
    lines = python(str(root / "examples" / "loop.py")).splitlines()
    heads = [line for line in lines if line.startswith("step")]
    assert [re.sub(r"\d+ responses", "N responses", head) for head in heads] == [
        "step 1: N responses drawn; trained on",
        "step 2: N responses drawn; trained on",
    ]
    learnt = [line.split() for line in lines if not line.startswith("step")]
    assert sorted(words[0] for words in learnt) == sorted(["easy", "even", "hard", "hopeless"] * 2)
    for prompt, *rest in learnt:
        responses = [word for word in rest if word in ("right", "wrong")]
        assert len(responses) == (4 if rest[0] != "nothing:" else 0)
        if prompt == "hopeless":
            assert rest[:2] == ["nothing:", "32"]
        if prompt == "even":
            assert sorted(responses) == ["right", "right", "wrong", "wrong"]


@pytest.mark.slow
def test_the_example_from_scratch_learns(root, tmp_path):
    names = runpy.run_path(str(root / "examples" / "from_scratch.py"))
    curve = names["train"](steps=8)
    (first, before), (last, after) = curve[0], curve[-1]
    assert 0.2 < before < 0.35 and after > before + 0.1
    assert (first, len(curve)) == (0, 5) and last > 8 * 256
    names["plot"](curve, str(tmp_path / "curve.png"))
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_cited_is_this_version(root):
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited[1] == version("rollwise")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "free space where the output goes"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "allow more open files"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "there is not enough memory"),
        (ImportError("x.so: failed to map segment from shared object"), "not enough memory"),
        (MemoryError("Unable to allocate 745. GiB"), "lower `engine.batch_size`"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "can't allocate memory: "),
        (OutOfMemoryError("CUDA out of memory"), "CUDA out of memory"),
    ],
)
def test_what_the_system_lacks_is_said_in_a_line(monkeypatch, capsys, error, said):
    def lacks(arguments):
        raise error

    monkeypatch.setattr("rollwise.cli._run", lacks)
    assert main(["doctor"]) == 2
    shown = capsys.readouterr().err
    assert said in shown and shown.count("\n") == 1


def test_an_argument_that_is_not_utf_8_is_named(tmp_path, capsys):
    assert main(["train", "--output", str(tmp_path / "run"), "--seed", "\udcff"]) == 2
    assert capsys.readouterr().err == r"rollwise: b'\xff' on the command line is not UTF-8" + "\n"
