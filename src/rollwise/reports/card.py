"""Write the data card of a prepared data set: its contents and how it was made, in Markdown."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rollwise.files import write_text

BAR = 40
"""Characters of the longest bar of the histogram."""

STAGES = {
    "empty_problems": "no question",
    "missing_answers": "no answer",
    "duplicates": "duplicate",
    "near_duplicates": "near duplicate",
    "refuted_solutions": "its solution does not come to its answer",
    "too_long": "prompt too long",
    "undrawn": "no response could be drawn",
    "out_of_range": "pass rate out of range",
}
"""Why problems are left out, in this order."""

COLUMNS = {
    "prompt": "the messages that the model is shown: a list of {role, content}",
    "reward_model": "`ground_truth`, the reference answer, and `style`",
    "data_source, ability, extra_info": "as verl has them",
    "key": "names the problem",
    "level, subject, solution": "as the source has them",
    "pass_rate": "the share of responses that was correct",
    "pass_rate_low, pass_rate_high": "its exact 95 % interval (Clopper and Pearson)",
    "drawn": "the number of responses",
}


def write_data_card(path: Path, summary: Mapping[str, Any], settings: Mapping[str, Any]) -> Path:
    """Write `README.md` into the folder of a preparation.

    Args:
        path: The folder.
        summary: Its counts, pass rates and histogram.
        settings: Its settings.

    Raises:
        RunError: It cannot be written.
    """
    target = path / "README.md"
    write_text(target, "\n".join(_lines(summary, settings)) + "\n")
    return target


def _lines(summary: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[str]:
    # Read by `datasets`, so that the responses beside it are not taken for problems.
    yield from ("---", "configs:", "- config_name: default", "  data_files: prepared.parquet")
    yield from ("---", "# Prepared problems", "")
    sources = ", ".join(code(source) for source in settings["data"]["sources"])
    yield f"{summary['chosen']:,} problems of {sources}, chosen by pass rate: `prepared.parquet`."
    yield from ("", "## What was left out", "", "| | left out | remaining |", "|---|---:|---:|")
    left = summary["read"]
    yield f"| read | | {left:,} |"
    for name, reason in STAGES.items():
        left -= summary[name]
        yield f"| {reason} | {summary[name]:,} | {left:,} |"
    yield from ("", _remarks(summary), "", "## Pass rates", "", _how(summary, settings), "")
    yield from ("```text", *_bars(summary["histogram"]), "```", "", "## Columns", "")
    yield from ("| column | what |", "|---|---|")
    yield from (f"| `{name}` | {what} |" for name, what in COLUMNS.items())


def _remarks(summary: Mapping[str, Any]) -> str:
    return (
        "Duplicates with another answer than the problem that was kept: "
        f"{summary['conflicting_answers']:,}. Reference solutions that were checked: "
        f"{summary['checked_solutions']:,}."
    )


def _how(summary: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    rate, engine = summary["pass_rate"], settings["engine"]
    return (
        f"By {summary['samples']} responses of {code(settings['model']['path'])} to each problem "
        f"(temperature {engine['temperature']:g}, at most {engine['max_new_tokens']:,} tokens, "
        f"seed {settings['seed']}), graded by `{settings['grading']['type']}`. The mean pass rate "
        f"is {rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}] (95 % interval over "
        f"problems). Responses have {summary['tokens']:.0f} tokens on average; "
        f"{100 * summary['truncated']:.1f} % were cut at the limit. {summary['lost_draws']:,} "
        f"draws were lost; the grader failed on {summary['grader_failures']:,} responses, which "
        f"count as incorrect. Kept are pass rates within {code(summary['range'])}. Each is an "
        "estimate: problems chosen for a low one turn out a little easier than it says."
    )


def _bars(histogram: Mapping[str, int]) -> Iterator[str]:
    most = max(histogram.values())
    for name, count in histogram.items():
        bar = "█" * -(-BAR * count // most)
        yield f"{name:>10}  {count:>7,}  {bar}".rstrip()


def code(text: str) -> str:
    """Show text as it is, whatever Markdown or HTML it holds."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", " ", str(text))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", plain)), default=0))
    pad = " " if "`" in plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}"
