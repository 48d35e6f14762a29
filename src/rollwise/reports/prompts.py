"""The prompts of a run, as the browser in its report shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
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

    A response is correct where its reward is above `threshold`. The `note` beside the `prompts`
    says what was left out.
    """
    table = folder.read_visits()
    if table is None:
        return {"prompts": [], "note": "", "threshold": threshold}
    rows, recorded = folder.read_newest_samples(MOST_RESPONSES)
    samples: Visits = {}
    for row in rows:
        samples.setdefault((row["key"], row["step"]), []).append(row)
    places = _places(table["key"])
    chosen = _chosen(places, [key for key, _ in reversed(samples)])
    responses, kept = _responses(samples, set(chosen))
    questions = table["question"].take([int(places[key][-1]) for key in chosen]).to_pylist()
    columns = {name: table[name].combine_chunks() for name in COLUMNS}
    most = max(2, MOST_VISITS // max(1, len(chosen)))
    prompts = [
        _prompt(key, question, columns, places[key], most, responses.get(key, []))
        for key, question in zip(chosen, questions, strict=True)
    ]
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


def _chosen(places: Mapping[str, NDArray[np.int64]], first: Sequence[str]) -> list[str]:
    """Return the prompts that are shown: these, and then those with most visits."""
    known = [key for key in first if key in places]
    others = sorted(places, key=lambda key: -len(places[key]))
    return list(dict.fromkeys([*known, *others]))[:MOST_PROMPTS]


def _prompt(
    key: str,
    question: str,
    columns: Mapping[str, Any],
    places: NDArray[np.int64],
    most: int,
    responses: Sequence[Row],
) -> Row:
    kept = [int(places[at]) for at in evenly(len(places), most)]
    return {
        "key": shown(key),
        "question": responses[0]["question"] if responses else shown(question),
        "answer": responses[0]["answer"] if responses else None,
        "visited": len(places),
        **{name: int(np.asarray(columns[name])[places].sum()) for name in ("correct", "drawn")},
        "visits": {name: column.take(kept).to_pylist() for name, column in columns.items()},
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
    return [*facts, bool(row.get("truncated")), text]
