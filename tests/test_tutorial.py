"""The tutorial: each of its files, blocks and commands, in order, with less to draw."""

import re
import shutil
import sys

import pytest
from small_runs import SMALL

from rollwise.cli import main
from rollwise.commands import compare_runs

BASE = (
    '{"prompts":{"batch_size":4},"data":{"problems":32,"max_terms":4},'
    '"engine":{"max_new_tokens":16},"evaluation":{"problems":4,"samples":2}}'
)
LESS = {
    "train": ["--steps=2", *SMALL],
    "compare": ["--tokens=400", "--evaluations=1", f"--base={BASE}"],
}
"""What is added to each command, so that it takes seconds."""


@pytest.mark.slow
def test_every_block_of_the_tutorial_runs_in_order(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare_runs, "START", "fork")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "hopeful", raising=False)
    shutil.copytree(root / "examples", "examples")
    text = (root / "docs/tutorial.md").read_text()
    readme = (root / "README.md").read_text()
    ran = []
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        name = re.match(r"# (\w+\.\w+)\n", block)
        if name:
            (tmp_path / name[1]).write_text(block)
        elif language == "python":
            exec(compile(block, "tutorial", "exec"), {"__name__": "tutorial"})
        for line in block.replace("\\\n", "").splitlines() if language == "bash" else ():
            words = line.split()
            if words[0] != "rollwise":  # an installation, which the README's command does too
                plain = readme.replace(" -q", "").replace(".venv/bin/pip", "pip")
                assert line in plain, line
                continue
            assert main(words[1:] + LESS.get(words[1], [])) == 0
            ran.append(words[1])
    assert ran.count("train") == 3 and ran[-1] == "compare"
    shown = capsys.readouterr().out
    assert "runs/adaptive: " in shown and "of the groups without signal" in shown
    assert (tmp_path / "runs/compare/report.html").exists()
    assert "mine" in (tmp_path / "runs/compare/comparison.md").read_text()
