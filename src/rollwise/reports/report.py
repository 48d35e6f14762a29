"""Write the report of a training run."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from rollwise.errors import RunError, one_line
from rollwise.files import write_text
from rollwise.records import Row, RunFolder, flatten

SAMPLED_PROMPTS = 6
"""The responses to this many prompts, the newest, are shown."""

SHOWN_CHARACTERS = 4000
"""The most characters of a response that are shown."""

_TRICKY = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that HTML does not allow, or that reorder the text around them."""


def write_report(path: Path) -> Path:
    """Write `report.html` into a run's folder: one page that needs nothing beside it.

    Responses are shown as text, never as markup. The report of an unfinished run covers the steps
    so far.

    Raises:
        RunError: There is no run in the folder, its records are not those of a run, or the report
            cannot be written.
    """
    try:
        page = _page(path)
    except (KeyError, TypeError, ValueError, AttributeError, jinja2.UndefinedError) as error:
        raise RunError(
            f"{path}: config.json, metrics.jsonl or samples.parquet lack what the report needs "
            f"({one_line(error)}); they may be of another command or release"
        ) from error
    target = path / "report.html"
    write_text(target, page)
    return target


def _page(path: Path) -> str:
    from rollwise.reports import plots

    folder = RunFolder(path)
    config = folder.read_config()
    lines = folder.read_metrics()
    steps = [line for line in lines if line["step"] > 0]
    kinds = [plots.reward, plots.zero_variance]
    if steps:
        kinds.append(plots.draws_by_round if steps[0]["draws_by_round"] else plots.draws)
        kinds.append(plots.exit_reasons)
        if "competence" in steps[0]:
            kinds.append(plots.competence)
        if "pass_rate_by_difficulty" in steps[0]:
            kinds.append(plots.pass_rate_by_difficulty)
        if any(line["pass_rate_by_expected"] for line in steps):
            kinds.append(plots.pass_rate_by_expected)
    kinds += [plots.entropy, plots.seconds]
    evaluated = [line for line in lines if "heldout" in line]
    drawn = [plots.heldout(lines)] if evaluated else []
    drawn += [plot(steps) for plot in kinds if steps]
    template = (files("rollwise.reports") / "template.html").read_text(encoding="utf-8")
    return (
        page_environment()
        .from_string(template)
        .render(
            name=path.resolve().name,
            evaluated=evaluated,
            steps=steps,
            totals=_totals(lines),
            plots=[safe_svg(svg) for svg in drawn],
            samples=_samples(folder.read_samples()),
            positive_threshold=config["grading"]["positive_threshold"],
            settings=flatten(config, "."),
        )
    )


def page_environment() -> jinja2.Environment:
    """Make the template environment: all text is escaped; the filter `shown` is for responses."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["shown"] = shown
    environment.globals["style"] = _marked(
        (files("rollwise.reports") / "style.html").read_text(encoding="utf-8")
    )
    return environment


def safe_svg(svg: str) -> Any:
    """Mark an SVG as markup; our plots contain no text but our own labels."""
    return _marked(svg)


def _marked(markup: str) -> Any:
    from markupsafe import Markup

    return Markup(markup)


def shown(text: str) -> str:
    """Shorten a long text, and spell out control and reordering characters."""
    more = len(text) - SHOWN_CHARACTERS
    cut = f"{text[:SHOWN_CHARACTERS]}… ({more:,} more characters)" if more > 0 else text
    return _TRICKY.sub(lambda found: f"\\u{ord(found[0]):04x}", cut)


def _totals(lines: list[Row]) -> Row:
    return {
        "steps": lines[-1]["step"],
        "draws": sum(line.get("draws", 0) for line in lines),
        "tokens": sum(line.get("tokens", 0) for line in lines),
        "seconds": lines[-1]["elapsed"],
        "failures": sum(line.get("grader_failures", 0) for line in lines),
        "lost": sum(line.get("lost_draws", 0) for line in lines),
    }


def _samples(rows: list[Row]) -> list[list[Row]]:
    """Group the responses to the newest prompts by prompt."""
    prompts: dict[Any, list[Row]] = {}
    for row in rows:
        prompts.setdefault((row["step"], row["key"]), []).append(row)
    return list(prompts.values())[: -SAMPLED_PROMPTS - 1 : -1]
