"""Build the documentation site in build/site, and check every link in it.

python scripts/build_site.py

The pages of `docs/` are staged in build/pages, with what they link to elsewhere in the repository:
other documents, and code as pages that show it. Two parts of the reference are written here: the
command line from its parser, and the Python names from each package's `__all__`, whose docstrings
mkdocstrings renders. Zensical builds the site. A warning, a dead link, or anything loaded from
another host is an error.
"""

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rollwise.cli import COMMANDS, make_parsers

ROOT = Path(__file__).parents[1]
PAGES, SITE = ROOT / "build/pages", ROOT / "build/site"
ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "benchmarks/RESULTS.md": "results.md",
}
"""Documents outside of `docs/`, and their pages; the landing page stands for the README."""
PACKAGES = {
    "rollwise.api": "Train, evaluate and compare: `rollwise.train` and so on.",
    "rollwise.sampling": "Drawing responses: exit rules, schedules, pools, groups, advantages.",
    "rollwise.prompts": "Choosing prompts.",
    "rollwise.beliefs": "What is known of each prompt's pass rate.",
    "rollwise.step": "One training step, for every trainer.",
    "rollwise.engines": "What draws the responses.",
    "rollwise.grading": "Response to reward.",
    "rollwise.answers": "Final answers of mathematics: found and compared.",
    "rollwise.environments": "What answers the model in episodes of several turns.",
    "rollwise.tasks": "Problems: reading, writing, benchmarks.",
    "rollwise.statistics": "Measuring models and methods.",
    "rollwise.records": "The folder of a run, and what goes to trackers.",
    "rollwise.reports": "HTML reports and data cards.",
    "rollwise.config": "The settings, as Python classes.",
    "rollwise.integrations.trl": "The trainer for TRL.",
    "rollwise.integrations.slime": "The data source and the hooks for slime.",
}
"""The packages of the reference, and what each is for."""
SHIM = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "bash"}


def main() -> None:
    """Stage the pages, build the site, and check it."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    stage()
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    built = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    # Zensical passes on what is wrong with a docstring, and does not count it.
    if built.returncode or "griffe:" in built.stdout:
        sys.exit(f"{built.stdout}\nthe site was not built")
    use_own_shim(SITE)
    shorten_reference_in_search(SITE)
    faults = sorted(set(faults_of(SITE)))
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        sys.exit(f"{len(faults)} faults in the site")
    pages = len(list(SITE.rglob("*.html")))
    print(f"{pages} pages, every link leads somewhere: {SITE.relative_to(ROOT)}/index.html")


def stage() -> None:
    """Write every page of the site to build/pages, its links leading to other pages."""
    shutil.copytree(ROOT / "docs", PAGES)
    documents = {ROOT / "docs" / page.name: page for page in PAGES.glob("*.md")}
    documents |= {ROOT / source: PAGES / name for source, name in ELSEWHERE.items()}
    del documents[ROOT / "README.md"]
    for source, page in documents.items():
        page.write_text(with_links(source.read_text(), source, page.parent))
    for file, text in (("command-line.md", command_line_page()), *python_pages()):
        (PAGES / file).write_text(text)


def with_links(text: str, source: Path, folder: Path) -> str:
    """Return a document's text with its links leading from `folder` to what is staged."""

    def replaced(match: re.Match[str]) -> str:
        target = match[2]
        if urlsplit(target).scheme:
            return match[0]
        page = staged((source.parent / target).resolve())
        return f"{match[1]}{os.path.relpath(page, folder)}{match[3]}"

    return LINK.sub(replaced, text)


def staged(file: Path) -> Path:
    """Return the page that stands for a file of the repository; code gets one that shows it."""
    if file.is_relative_to(ROOT / "docs"):
        return PAGES / file.relative_to(ROOT / "docs")
    name = str(file.relative_to(ROOT))
    if name in ELSEWHERE:
        return PAGES / ELSEWHERE[name]
    page = PAGES / "source" / f"{name}.md"
    if file.suffix == ".ipynb":
        text = notebook_page(file)
    elif file.is_dir():
        text = "\n".join(f"- `{path.name}`" for path in sorted(file.iterdir()))
    else:
        text = f"````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}````"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"# `{name}`\n\n{text}\n")
    return page


def notebook_page(file: Path) -> str:
    """Return a notebook's cells as Markdown."""
    cells = [
        (cell["cell_type"], "".join(cell["source"]))
        for cell in json.loads(file.read_text())["cells"]
    ]
    parts = [f"```python\n{text}\n```" if kind == "code" else text for kind, text in cells]
    return "\n\n".join(parts).replace("# ", "## ", 1)


def use_own_shim(site: Path) -> None:
    """Let pages load the search's shim from the site, where Zensical's template names a host."""
    for page in site.rglob("*.html"):
        own = os.path.relpath(site / "assets/iframe-worker.js", page.parent)
        page.write_text(page.read_text().replace(SHIM, own))


def shorten_reference_in_search(site: Path) -> None:
    """Let the search find Python names by their titles alone, so that pages come before them."""
    index = json.loads((site / "search.json").read_text())
    for item in index["items"]:
        if item["location"].startswith("rollwise."):
            item["text"] = ""
    text = json.dumps(index)
    (site / "search.json").write_text(text)
    (site / "search.js").write_text(f"var __index = {text}")


def command_line_page() -> str:
    """Return the page of the command line: what each command is for, and its own options."""
    parser, commands = make_parsers()
    lines = ["# Command line", "", f"{parser.description}", "", "| command | |", "|---|---|"]
    lines += [f"| [`{name}`](#rollwise-{name}) | {COMMANDS[name].help} |" for name in commands]
    lines += ["", "Every setting is an option too, `--section.key VALUE`: [Settings](settings.md)."]
    for name, command in commands.items():
        usage = " ".join(command.format_usage().removeprefix("usage: ").split())
        lines += ["", f"## `rollwise {name}`", "", f"{command.description}", "", f"    {usage}", ""]
        lines += options_of(command)
    return "\n".join(lines) + "\n"


def options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the arguments and options of a command that are no settings, as Markdown."""
    for action in parser._actions:
        names = action.option_strings or [action.dest]
        if action.dest != "help":
            yield f"- {', '.join(f'`{name}`' for name in names)}: {action.help}"


def python_pages() -> Iterator[tuple[str, str]]:
    """Yield the pages of the Python reference: file and text."""
    lines = [
        "# Python names",
        "",
        "`import rollwise as rw` has the commands, and what a loop of one's own needs.",
        "",
    ]
    lines += ["| package | |", "|---|---|"]
    lines += [f"| [`{name}`]({name}.md) | {what} |" for name, what in PACKAGES.items()]
    public = importlib.import_module("rollwise")
    lines += ["", "## `rollwise`", "", "| name | what it is |", "|---|---|"]
    for name in public.__all__:
        value = getattr(public, name)
        if hasattr(value, "__module__"):
            package = ".".join(value.__module__.split(".")[:2])
            first = (value.__doc__ or "").strip().partition("\n")[0].replace("|", "\\|")
            lines.append(f"| [`{name}`]({package}.md#{package}.{name}) | {first} |")
    yield "python.md", "\n".join(lines) + "\n"
    for package, what in PACKAGES.items():
        names = public_names(package)
        parts = [f"# `{package}`\n\n{what}\n", *(f"::: {package}.{name}\n" for name in names)]
        yield f"{package}.md", "\n".join(parts)


def public_names(package: str) -> list[str]:
    """Return the public names of a package, read from its file: some need what is not installed."""
    module = ROOT / "src" / package.replace(".", "/")
    source = (module / "__init__.py" if module.is_dir() else module.with_suffix(".py")).read_text()
    [names] = re.findall(r"^__all__ = \[(.*?)\]", source, re.DOTALL | re.MULTILINE)
    return re.findall(r'"(\w+)"', names)


class Links(HTMLParser):
    """What a page links to and loads, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag's anchor and where it leads."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.targets.append(given["href"])
        elif tag == "link" and "href" in given and given.get("rel") != "canonical":
            self.loaded.append(given["href"])
        elif tag in ("img", "script", "iframe", "source") and "src" in given:
            self.loaded.append(given["src"])


def faults_of(site: Path) -> Iterator[str]:
    """Yield what is wrong with a built site: dead links, and what other hosts serve."""
    pages = {page: Links(page.read_text()) for page in site.rglob("*.html")}
    for page, links in pages.items():
        where = page.relative_to(site)
        if where.name == "404.html":
            continue
        for target in links.targets + links.loaded:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in links.loaded and parts.scheme != "data":
                    yield f"{where}: loads {target}"
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if file.is_dir():
                file /= "index.html"
            if not file.exists():
                yield f"{where}: dead link {target}"
            elif file in pages and unquote(parts.fragment) not in pages[file].anchors | {""}:
                yield f"{where}: no such place {target}"


if __name__ == "__main__":
    main()
