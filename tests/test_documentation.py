"""What the documentation says is so: its code runs, its commands are those that CI runs."""

import importlib.util
import re

import pytest

from rollwise.config import (
    CompareConfig,
    EvaluateConfig,
    PlanConfig,
    PrepareConfig,
    TrainConfig,
    setting_names,
)

PAGES = [
    "README.md",
    "docs/grading.md",
    "docs/objectives.md",
    "docs/prompts.md",
    "docs/sampling.md",
    "docs/schedules.md",
]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_its_python_runs(root, page):
    found = blocks(root / page, "python")
    assert found
    for block in found:
        exec(compile(block, page, "exec"), {"__name__": "documentation"})


def test_the_page_of_settings_is_written_from_the_settings(root):
    script = root / "scripts/write_settings_page.py"
    specification = importlib.util.spec_from_file_location("write_settings_page", script)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert (root / "docs/settings.md").read_text() == module.page(), f"run python {script.name}"
    for kind in (TrainConfig, EvaluateConfig, PrepareConfig, CompareConfig, PlanConfig):
        assert [name for name in setting_names(kind) if f"`{name}`" not in module.page()] == []


def test_the_page_of_settings_shows_the_time_limit_of_each_kind_and_names_sections_once(root):
    page = (root / "docs/settings.md").read_text()
    for kind, limit in (("math", 2.0), ("code", 10.0), ("environment", 60.0)):
        table = page.split(f"## grading: `{kind}`")[1].split("## ")[0]
        assert f"| `grading.timeout` | `{limit}` |" in table
    assert "`grading`, `engine`: as further up." in page


def test_ci_runs_the_test_command_of_the_readme(root):
    [command] = re.findall(r"<!-- test -->\n```bash\n(.*)\n```", (root / "README.md").read_text())
    assert command in (root / ".ci/run").read_text().splitlines()


def test_every_link_within_the_repository_leads_somewhere(root):
    for page in [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
