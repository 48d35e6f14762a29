"""The notebooks: every cell runs, in order."""

import asyncio
import json

import pytest
from small_runs import SMALL

from rollwise.cli import main


def run(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    names = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []  # what a run shows is not kept
            exec(compile("".join(cell["source"]), notebook.name, "exec"), names)
    return names


def test_the_core_alone(root, capsys):
    run(root / "examples/notebooks/core.ipynb")
    shown = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    spent = {name: int(shown[name].split()[0]) for name in ("GRPO", "streamed", "hopeful")}
    assert spent["GRPO"] == 800 < spent["streamed"]
    assert spent["hopeful"] < spent["streamed"]


@pytest.mark.slow
def test_a_runs_folder_as_a_data_frame(root, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--output", "runs/first", "--steps=2", *SMALL]) == 0
    names = run(root / "examples/notebooks/run_folder.ipynb")
    assert names["steps"].index.tolist() == [0, 1, 2]
    assert names["exits"].sum() == 8  # of two steps with four prompts


@pytest.mark.slow
def test_training_from_a_notebook(root, tmp_path, monkeypatch):
    """Stopped after four steps, and resumed to six; also with the event loop that a kernel has."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)

    async def kernel():
        return run(root / "examples/notebooks/train.ipynb")

    names = asyncio.run(kernel())
    assert names["metrics"].index.tolist() == [0, 1, 2, 3, 4]
    assert names["result"].summary["steps"] == 6
    assert names["evaluated"].summary["benchmarks"]["data"]["problems"] == 20
    assert len(names["heard"]) > 4 * names["result"].summary["steps"]
