"""Self-contained pages: one base for all reports, and what makes them safe.

Text of models and data gets into a page in two ways only: through the templates, which escape
it, and as JSON in a script element that is never run, whose text the page's own script sets as
text. A Content-Security-Policy lets only the page's own script and style run, by their hashes,
and lets nothing be loaded.
"""

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from rollwise.files import write_text

SHOWN_CHARACTERS = 4000
"""The most characters of a text that are shown."""

DIGITS = 4
"""Significant digits of the figures of a chart."""

PlainTable = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, header and rows of a table of text; a cell of a page may be what `link_to` makes."""

_TRICKY = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that HTML does not allow, or that reorder the text around them."""

_NUMERIC = re.compile(r"([≥±+−-]?\s?[\d.].{,30}|–?)$", re.DOTALL)
"""A cell of a table that begins with a number, or holds none."""


def write_page(
    folder: Path,
    template: str,
    data: Mapping[str, Any],
    scripts: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    title: str = "",
    **content: Any,
) -> Path:
    """Write `report.html` into a folder, from a template of `parts/`, which extends `base.html`.

    The `title` is by default the folder's name. The page's script reads `data`: `charts`, `grids`
    and others, such as `prompts`. Further `scripts` of `parts/` come after uPlot and the charts.
    `facts` are what the header says, by name; `content` is what the template shows.
    """
    style = part("vendor/uplot/uPlot.min.css") + part("parts/style.css")
    script = part("vendor/uplot/uPlot.iife.min.js")
    for name in ("common.js", "looks.js", "charts.js", "controls.js", *scripts):
        script += "\n" + part(f"parts/{name}")
    page = environment().get_template(template)
    text = page.render(
        title=title or folder.resolve().name,
        facts=facts or {},
        policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        data=Markup(as_json(data)),
        version=version("rollwise"),
        has_prompts=bool(data.get("prompts")),
        **content,
    )
    write_text(folder / "report.html", text)
    return folder / "report.html"


def as_json(data: Any) -> str:
    """Write data as JSON that cannot end the script element around it; NaN becomes null."""
    text = json.dumps(_plain(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def shown(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    """Shorten a long text, and spell out control and reordering characters."""
    more = len(text) - characters
    cut = f"{text[:characters]}… ({more:,} more characters)" if more > 0 else text
    return _TRICKY.sub(lambda found: f"\\u{ord(found[0]):04x}", cut)


def link_to(target: Path, text: str, folder: Path) -> Markup:
    """Link to another page, relative to the folder of the page that has the link."""
    address = quote(os.path.relpath(target, folder))
    return Markup('<a href="{}">{}</a>').format(address, shown(text))


def part(name: str) -> str:
    """Read a file of this package."""
    return (files("rollwise.reports") / name).read_text(encoding="utf-8")


def markdown_code(text: str) -> str:
    """Show text in Markdown as it is, whatever Markdown or HTML it holds."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", " ", str(text))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", plain)), default=0))
    pad = " " if "`" in plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


@cache
def environment() -> jinja2.Environment:
    """Return what reads the templates of `parts/`; HTML templates escape all they are given."""
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: part(f"parts/{name}")),
        autoescape=lambda name: name != "card.md",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    made.filters |= {"shown": shown, "code": markdown_code}
    made.tests["numeric"] = _NUMERIC.match
    return made


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _plain(value: Any) -> Any:
    """Turn arrays into lists, round floats to what a chart can show, and NaN into None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        rounded = float(f"{value:.{DIGITS}g}")
        return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
    return value
