"""The page on GSM8K: each of its files and commands, in order, on data of GSM8K's form."""

import re

import pytest
from row_files import GSM8K_CARD, write_rows

from rollwise.cli import main
from rollwise.commands import compare_runs

DRAWN = ["--engine.max_new_tokens=8", "--grading.workers=1"]
LESS = {
    "evaluate": ["--data.problems=4", "--samples=2", *DRAWN],
    "train": [
        *("--steps=2", "--prompts.batch_size=8", "--learner.mini_batches=2", *DRAWN),
        *("--evaluation.problems=4", "--evaluation.samples=2"),
    ],
    "compare": [
        *("--seconds=3", "--seeds=1", "--evaluations=1"),
        '--base={"prompts":{"batch_size":8},"learner":{"mini_batches":2},'
        '"engine":{"max_new_tokens":8},"evaluation":{"problems":4,"samples":2},'
        '"grading":{"workers":1}}',
    ],
}
"""What is added to each command, so that it takes seconds."""


def row(i):
    each, times = 400 + i, 3
    working = f"Ann has {each}*{times}=<<{each}*{times}={each * times}>>{each * times} pens."
    question = f"Ann has {times} boxes of {each} pens. How many pens does she have?"
    return {"question": question, "answer": f"{working}\n#### {each * times:,}"}


@pytest.mark.slow
def test_every_line_of_the_page_runs_in_order(root, reader, tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare_runs, "START", "fork")
    for part, rows in (
        ("main/train", range(260)),
        ("main/test", range(260, 280)),
        ("socratic/train", range(2)),
    ):
        write_rows(tmp_path / f"openai/gsm8k/{part}-00000-of-00001.parquet", [row(i) for i in rows])
    (tmp_path / "openai/gsm8k/README.md").write_text(GSM8K_CARD)
    (tmp_path / "Qwen").mkdir()
    (tmp_path / "Qwen/Qwen2.5-0.5B-Instruct").symlink_to(reader)
    page, ran = (root / "docs/gsm8k.md").read_text(), []
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for _, block in (found for found in blocks if found[0] == "toml"):
        (tmp_path / re.match(r"# (\w+\.toml)\n", block)[1]).write_text(block)
    for _, block in (found for found in blocks if found[0] == "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = line.split()
            if words[0] == "rollwise":
                assert main(words[1:] + LESS.get(words[1], [])) == 0, line
                ran.append(words[1])
    assert ran == ["doctor", "evaluate", "train", "evaluate", "compare"]
    shown = " ".join("".join(capsys.readouterr()).split())
    said = "columns: question -> problem, answer (after ####) -> answer"
    assert said in page and said in shown  # by `doctor`
    assert caplog.text.count(said) >= 4
    for folder in ("gsm8k", "after", "methods"):
        assert (tmp_path / f"runs/{folder}/report.html").exists()
    assert "GRPO" in (tmp_path / "runs/methods/comparison.md").read_text()
