"""`scripts/newest_releases.py`, with a package index of its own."""

from subprocess import CompletedProcess

NEWEST = {"numpy": "2.5.0", "trl": "1.17.0", "my-tool": "3.1"}

PROJECT = """
[project]
name = "Rollwise"
dependencies = ["numpy>=1.26"]
[project.optional-dependencies]
trl = ["rollwise[train]", "trl>=1.16,<1.17; python_version > '3'"]
dev = ["My_Tool[fast]>=3", "gone", "trl!=1.16.1"]
"""


def test_each_package_has_a_line_that_says_what_is_not_admitted_or_pinned(load_script, tmp_path):
    script = load_script("newest_releases")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "constraints.txt").write_text("# numpy==1\nNumPy==2.4.6\nmy.tool==3.1\n")
    (tmp_path / "constraints-trl.txt").write_text("trl==1.16.0\nnumpy==2.5.0\n")
    found = script.admitted(tmp_path), script.pinned(tmp_path)
    assert list(script.lines(*found, NEWEST.get)) == [
        "gone: not found",
        "my-tool 3.1",
        "numpy 2.5.0; constraints.txt: 2.4.6",
        "trl 1.17.0; admitted: !=1.16.1,<1.17,>=1.16; constraints-trl.txt: 1.16.0",
    ]
    assert list(script.lines(*found, NEWEST.get, ["My_Tool"])) == ["my-tool 3.1"]


def test_it_reads_our_own_files_and_the_answer_of_pip(load_script, root, monkeypatch):
    script = load_script("newest_releases")
    assert {"numpy", "torch", "verl", "zensical"} <= script.admitted(root).keys()
    assert "numpy" in script.pinned(root)
    said = {"numpy": "numpy (2.5.0)\nAvailable versions: 2.5.0, 2.4.6\n", "gone": ""}

    def run(command, **options):
        return CompletedProcess(command, 0, stdout=said[command[-1]])

    monkeypatch.setattr(script.subprocess, "run", run)
    assert script.newest_on_index("numpy") == "2.5.0"
    assert script.newest_on_index("gone") is None
