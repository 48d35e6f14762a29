"""What the documentation says is so: its code runs, its commands are those that CI runs."""

import pkgutil
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from small_runs import SMALL

from rollwise.cli import COMMANDS, main, parse
from rollwise.config import KINDS, TrainConfig
from rollwise.config.choices import CHOICES
from rollwise.config.reading import setting_types
from rollwise.integrations.verl.settings import read_settings

PAGES = [
    *("docs/grading.md", "docs/episodes.md", "docs/objectives.md"),
    *("docs/own-loop.md", "docs/prompts.md", "docs/schedules.md"),
]
CONTINUED = {"docs/own-loop.md"}  # whose blocks use the names of those before them


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_its_python_runs(root, page):
    found = blocks(root / page, "python")
    assert found
    names = {}
    for block in found:
        names = (names if page in CONTINUED else {}) | {"__name__": "documentation"}
        exec(compile(block, page, "exec"), names)


def shown_plugins():
    """Page, section, class and block of each class in the documentation that inherits a part."""
    root = Path(__file__).parents[1]
    parents = {choice.parent.partition(":")[2]: name for name, choice in CHOICES.items()}
    parents |= {"FixedSetSampler": "prompts"}
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        for block in blocks(page, "python"):
            for kind, parent in re.findall(r"^class (\w+)\((?:\w+\.)*(\w+)\)", block, re.MULTILINE):
                if parent in parents:
                    yield pytest.param(parents[parent], kind, block, id=f"{page.name}:{kind}")


@pytest.mark.parametrize(("section", "kind", "block"), [*shown_plugins()])
def test_a_class_that_it_shows_trains_as_a_plugin(tmp_path, monkeypatch, section, kind, block):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / f"shown_{kind.lower()}.py").write_text(block)
    run = ["train", "--plugin_folder", str(tmp_path), "--output", str(tmp_path / "run")]
    run += [f"--{section}.{CHOICES[section].tag}", f"shown_{kind.lower()}:{kind}"]
    assert [main([*run, *SMALL, f"--steps={steps}"]) for steps in (1, 2)] == [0, 0]


def test_every_command_of_the_documents_is_one(root, monkeypatch):
    monkeypatch.chdir(root)
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    text = "\n".join(block.replace("\\\n", " ") for page in pages for block in blocks(page, "bash"))
    commands = re.findall(r"^(?:\S+=\S+ )*rollwise (.*?)(?:\s+#.*|[|>].*|)$", text, re.MULTILINE)
    assert len(commands) > 30
    for command in commands:
        words = [w for w in shlex.split(command) if not w.endswith(".toml") or Path(w).exists()]
        parsed = parse(words)
        assert parsed.command == words[0], command
        known = setting_types(COMMANDS[words[0]].kind or TrainConfig)
        given = {name for name, _ in parsed.settings if name.partition(".")[0] not in CHOICES}
        assert given <= {*known}, command


def test_the_settings_on_the_page_on_verl_are_valid_there(root):
    found = [read_settings([tomllib.loads(b)]) for b in blocks(root / "docs/verl.md", "toml")]
    assert {config.advantage.baseline for config, _, _ in found} == {"belief"}
    assert any("trainer.v1.trainer_mode" in own for _, _, own in found)


def test_the_page_of_settings_is_written_from_the_settings(root, load_script):
    module = load_script("write_settings_page")
    page = (root / "docs/settings.md").read_text()
    assert page == module.page(), "run python scripts/write_settings_page.py"
    for kind in KINDS.values():
        assert [name for name in setting_types(kind) if f"`{name}`" not in module.page()] == []


def test_ci_runs_the_test_command_of_the_readme(root):
    [command] = re.findall(r"<!-- test -->\n```bash\n(.*)\n```", (root / "README.md").read_text())
    assert command in (root / ".ci/run").read_text().splitlines()


def test_the_results_name_every_benchmark_and_pages_name_none_that_is_missing(root):
    pages = [root / "README.md", root / "benchmarks/RESULTS.md", *(root / "docs").glob("*.md")]
    named = {
        name for page in pages for name in re.findall(r"benchmarks/[\w/]+\.\w+", page.read_text())
    }
    assert [name for name in named if not (root / name).exists()] == []
    claims, _, _ = pages[1].read_text().partition("\n## ")
    scripts = [
        path for path in (root / "benchmarks").rglob("*.py") if "__main__" in path.read_text()
    ]
    assert {path.name for path in scripts} == set(re.findall(r"(\w+\.py)`", claims))


def test_every_link_within_the_repository_leads_somewhere(root):
    others = [root / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md")]
    for page in [*others, *(root / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_site_has_a_place_for_every_page_and_every_package_with_public_names(root, load_script):
    site = load_script("build_site")
    packages = (root / "src/rollwise").rglob("__init__.py")
    public = {
        ".".join(file.parent.relative_to(root / "src").parts)
        for file in packages
        if "\n__all__ = " in file.read_text()
    }
    assert public - {"rollwise"} | {"rollwise.api"} == set(site.PACKAGES)
    assert "RolloutSession" in site.public_names("rollwise.sampling")
    names = {page.name for page in (root / "docs").glob("*.md")} | set(site.ELSEWHERE.values())
    names |= {name for name, _ in site.python_pages()} | {"command-line.md"}
    placed = re.findall(r"[\w.-]+\.md", (root / "mkdocs.yml").read_text())
    assert names ^ set(placed) == set(), "give each page its place in mkdocs.yml"
    assert len(placed) == len(names)


def test_the_pictures_of_the_concepts_are_those_that_their_script_draws(root, load_script):
    script = load_script("draw_concepts")
    page = (root / "docs/concepts.md").read_text()
    for name, (_, shown) in script.PICTURES.items():
        assert f"![{shown}](images/{name}.svg)" in page
        drawn, kept = script.picture(name), (root / f"docs/images/{name}.svg").read_text()
        texts = [re.findall(r"<text.*?>(.*?)</text>", picture) for picture in (drawn, kept)]
        assert texts[0] == texts[1], f"run python scripts/draw_concepts.py: {name}"


def test_the_main_way_is_at_most_thirty_functions_long(root):
    page = (root / "docs/architecture.md").read_text()
    tree = page.partition("## The main way")[2].partition("\n## ")[0]
    names = re.findall(r"^(?:[│├└─ ]*─ )?(\w+\.[\w.]+)", tree, re.MULTILINE)
    assert 20 < len(set(names)) <= 30
    for name in names:
        assert callable(pkgutil.resolve_name(f"rollwise.{name}")), name
