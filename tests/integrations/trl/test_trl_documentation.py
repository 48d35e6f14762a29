"""The page on TRL: its code runs, and so does the example that it names."""

import re
import subprocess
import sys

import pytest


@pytest.fixture
def blocks(root):
    page = (root / "docs/trl.md").read_text()
    return re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@pytest.mark.trl
def test_the_code_of_the_page_runs(blocks):
    pytest.importorskip("trl")
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "docs/trl.md", "exec"), {"__name__": "documentation"})


@pytest.mark.trl
@pytest.mark.slow
def test_the_example_trains(root, tmp_path):
    pytest.importorskip("trl")
    command = [sys.executable, str(root / "examples/trl_running_sums.py"), "--steps", "16"]
    run = subprocess.run(
        [*command, "--output", str(tmp_path)], capture_output=True, text=True, timeout=1800
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert len(re.findall("'rollwise/trained_groups'", run.stdout)) == 2
