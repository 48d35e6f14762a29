"""The page on TRL: its code runs, and so does the example that it names."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("trl")

import pyarrow as pa
import pyarrow.parquet as pq

from rollwise.models.loading import model_path
from rollwise.tasks import make_running_sums

pytestmark = pytest.mark.trl


def test_the_code_of_the_page_runs(root):
    page = (root / "docs/trl.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/trl.md", "exec"), {"__name__": "documentation"})


@pytest.fixture
def arguments(tmp_path):
    """What each example is called with where there is neither a GPU nor a hub."""
    rows = [
        {"prompt": problem.messages[0]["content"], "answer": problem.answer}
        for problem in make_running_sums(256, seed=0)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "sums.parquet")
    own = ["--model", str(model_path("running-sums")), "--data", str(tmp_path / "sums.parquet")]
    return {"trl_running_sums": [], "trl_math": [*own, "--longest", "24"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trl_running_sums", "trl_math"])
def test_an_example_trains(name, root, tmp_path, arguments):
    command = [sys.executable, str(root / f"examples/{name}.py"), *arguments[name]]
    run = subprocess.run(
        [*command, "--steps", "32", "--output", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert re.findall("'rollwise/draws': '?([0-9.e+]+)", run.stdout) == ["256"] * 2
    assert len(re.findall("'rollwise/trained_groups'", run.stdout)) == 2
