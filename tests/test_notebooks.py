"""The notebooks: every cell runs, in order."""

import asyncio
import builtins
import json
import sys
from types import SimpleNamespace

import pytest
from small_runs import SMALL

from rollwise.cli import main


def run(notebook, **changed):
    """Run the cells, but those of a kernel's own commands; `changed` names have these values."""
    cells = json.loads(notebook.read_text())["cells"]
    names = {"__name__": "notebook"}
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and not source.startswith("%"):
            assert cell["outputs"] == []  # what a run shows is not kept
            exec(compile(source, notebook.name, "exec"), names)
            names |= {name: value for name, value in changed.items() if name in names}
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


@pytest.mark.slow
def test_the_comparison_for_a_free_gpu(root, tmp_path, monkeypatch, load_script):
    """With a tiny model for Qwen2.5-0.5B, and a few problems in GSM8K's form."""
    pytest.importorskip("pandas")
    pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(IFrame=lambda *a, **b: a))
    monkeypatch.setattr(builtins, "display", print, raising=False)
    model = load_script("rehearse").make_model(tmp_path / "model", 1, 64, words=512)
    rows = [{"question": f"{i}+1?", "answer": f"{i} and 1\n#### {i + 1}"} for i in range(180)]
    for name, part in (("train", rows[:140]), ("test", rows[140:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)))
    names = run(
        root / "examples/notebooks/free_gpu.ipynb",
        MODEL=str(model),
        DATA={"train": "train.jsonl", "heldout": "test.jsonl", "max_prompt_tokens": 256},
        SECONDS=2,
        FOLDER=tmp_path / "gsm8k",
    )
    assert set(names["table"].index) == {"default", "GRPO"}
