"""The prompts of a run, as the browser in its report shows them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rollwise.records import Row, RunFolder
from rollwise.reports.charts import evenly
from rollwise.reports.page import as_json, shown

MOST_PROMPTS = 2000
"""The most prompts that are shown."""

MOST_VISITS = 40_000
"""The most visits that are shown, of all prompts together."""

MOST_RESPONSES = 20_000
"""The most responses that are looked at: the newest."""

RESPONSE_BYTES = 1_500_000
"""Bytes that responses may take in the page."""

COLUMNS = ("step", "correct", "drawn", "expected", "strength", "trained", "exit_reason")
"""What is shown of a visit."""

Visits = dict[tuple[str, int], list[Row]]
"""Responses by the key of their prompt and the step, in the order of the steps."""


def prompt_data(folder: RunFolder, threshold: float) -> dict[str, Any]:
    """Gather the prompts of a run with their visits, newest responses first.

    A response is correct where its `acc` is above `threshold`. The `note` beside the `prompts`
    says what was left out.
    """
    table = folder.visits.read()
    if not len(table):
        return {"prompts": [], "note": "", "threshold": threshold}
    rows, recorded = folder.read_newest_samples(MOST_RESPONSES)
    samples: Visits = {}
    for row in rows:
        samples.setdefault((row["key"], row["step"]), []).append(row)
    places = _places(table["key"])
    most_visited = sorted(places, key=lambda key: -len(places[key]))
    with_responses = [key for key, _ in reversed(samples) if key in places]
    chosen = list(dict.fromkeys([*with_responses, *most_visited]))[:MOST_PROMPTS]
    responses, kept = _responses(samples, set(chosen))
    most = max(2, MOST_VISITS // max(1, len(chosen)))
    table = table.combine_chunks()
    prompts = [_prompt(k, table, places[k], most, responses.get(k, [])) for k in chosen]
    note = []
    if len(chosen) < len(places):
        note.append(
            f"{len(chosen):,} of {len(places):,} prompts are shown: those whose responses were "
            "kept last, then those visited most."
        )
    if any(len(places[key]) > most for key in chosen):
        note.append(f"Of a prompt's visits at most {most} are shown, evenly spaced.")
    if kept < recorded:
        note.append(
            f"The newest {kept:,} of {recorded:,} kept responses are shown; all are in samples."
        )
    return {"prompts": prompts, "note": " ".join(note), "threshold": threshold}


def _places(keys: Any) -> dict[str, NDArray[np.int64]]:
    """Return the places of each prompt's visits, in the order of the steps."""
    encoded = keys.combine_chunks().dictionary_encode()
    names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    places = np.split(np.argsort(codes, kind="stable"), ends[:-1])
    return dict(zip(names, places, strict=True))


def _prompt(
    key: str,
    table: Any,
    places: NDArray[np.int64],
    most: int,
    responses: Sequence[Row],
) -> Row:
    visits, question = (
        table.select(COLUMNS).take(places),
        table["question"][int(places[-1])].as_py(),
    )
    kept = visits.take(evenly(len(places), most))
    return {
        "key": shown(key),
        "question": responses[0]["question"] if responses else shown(question),
        "answer": responses[0]["answer"] if responses else None,
        "visited": len(places),
        **{name: pc.sum(visits[name]).as_py() for name in ("correct", "drawn")},
        "visits": kept.to_pydict(),
        "responses": [
            {name: each[name] for name in ("step", "exit_reason", "rows")} for each in responses
        ],
    }


def _responses(samples: Visits, wanted: set[str]) -> tuple[dict[str, list[Row]], int]:
    """Return the recorded visits of each prompt, newest first, while there is room for them."""
    found: dict[str, list[Row]] = {}
    room, count = RESPONSE_BYTES, 0
    for (key, step), rows in reversed(samples.items()):
        if key not in wanted:
            continue
        visit = {
            "step": step,
            "exit_reason": rows[0]["exit_reason"],
            "question": shown(rows[0]["question"]),
            "answer": shown(rows[0]["answer"]),
            "rows": [response(row, shown(row["response"])) for row in rows],
        }
        room -= len(as_json(visit).encode())
        if room < 0 and count:
            break
        found.setdefault(key, []).append(visit)
        count += len(rows)
    return found, count


def response(row: Row, text: str) -> list[Any]:
    """Return what the page's script reads of a response."""
    facts = [row["index"], row["reward"], row.get("advantage"), row.get("tokens")]
    return [*facts, bool(row.get("truncated")), text, row.get("acc", row["reward"])]
