"""The prompts of a run, as the browser in its report shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.records import Row, RunFolder
from rollwise.reports.charts import evenly
from rollwise.reports.page import as_json, shown

MOST_PROMPTS = 2000
"""Prompts that are shown."""

MOST_VISITS = 40_000
"""Visits that are shown, of all prompts together."""

MOST_RESPONSES = 20_000
"""Responses that are looked at, the newest."""

RESPONSE_BYTES = 2_000_000
"""Bytes that responses may take in the page."""

COLUMNS = ("step", "correct", "drawn", "expected", "strength", "trained", "exit_reason")
"""What is shown of a visit."""

Samples = dict[tuple[str, int], list[Row]]
"""Responses by the key of their prompt and the step."""


def prompt_data(folder: RunFolder, threshold: float) -> dict[str, Any]:
    """Gather the prompts of a run with their visits, newest responses first.

    A response is correct where its reward is above `threshold`. What was left out is said in the
    `note` beside the `prompts`.
    """
    table = folder.read_visits()
    if table is None:
        return {"prompts": [], "note": "", "threshold": threshold}
    samples, recorded = _samples(folder)
    visits = _visits_by_prompt(table["key"])
    chosen = _chosen(visits, [key for key, _ in reversed(samples)])
    responses, shown_responses = _responses(samples, set(chosen))
    columns = {name: table[name].combine_chunks() for name in COLUMNS}
    counts = {name: np.asarray(columns[name]) for name in ("correct", "drawn")}
    questions = table["question"].take([int(visits[key][-1]) for key in chosen]).to_pylist()
    most = max(2, MOST_VISITS // max(1, len(chosen)))
    prompts = []
    for key, question in zip(chosen, questions, strict=True):
        own = responses.get(key, [])
        places = visits[key]
        kept = [int(places[at]) for at in evenly(len(places), most)]
        prompts.append(
            {
                "key": shown(key),
                "question": own[0]["question"] if own else shown(question),
                "answer": own[0]["answer"] if own else None,
                "visited": len(places),
                **{name: int(counts[name][places].sum()) for name in counts},
                "visits": {name: column.take(kept).to_pylist() for name, column in columns.items()},
                "responses": [
                    {name: each[name] for name in ("step", "exit_reason", "rows")} for each in own
                ],
            }
        )
    thinned = any(len(visits[key]) > most for key in chosen)
    note = _note((len(chosen), len(visits)), most if thinned else None, (shown_responses, recorded))
    return {"prompts": prompts, "note": note, "threshold": threshold}


def _samples(folder: RunFolder) -> tuple[Samples, int]:
    """Return the newest responses, in the order of the steps, and how many there are in all."""
    rows, recorded = folder.read_newest_samples(MOST_RESPONSES)
    samples: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        samples.setdefault((row["key"], row["step"]), []).append(row)
    return samples, recorded


def _visits_by_prompt(keys: Any) -> dict[str, NDArray[np.int64]]:
    """Return the places of each prompt's visits, in the order of the steps."""
    encoded = keys.combine_chunks().dictionary_encode()
    names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    places = np.split(np.argsort(codes, kind="stable"), ends[:-1])
    return dict(zip(names, places, strict=True))


def _chosen(visits: Mapping[str, NDArray[np.int64]], first: Sequence[str]) -> list[str]:
    """Return the prompts that are shown: these, and then those with most visits."""
    known = [key for key in first if key in visits]
    others = sorted(visits, key=lambda key: -len(visits[key]))
    return list(dict.fromkeys([*known, *others]))[:MOST_PROMPTS]


def _responses(samples: Samples, wanted: set[str]) -> tuple[dict[str, list[Row]], int]:
    """Return the recorded visits of each prompt, newest first, while there is room for them."""
    found: dict[str, list[Row]] = {}
    room, count = RESPONSE_BYTES, 0
    for (key, step), rows in reversed(list(samples.items())):
        if key not in wanted:
            continue
        visit = {
            "step": step,
            "exit_reason": rows[0]["exit_reason"],
            "question": shown(rows[0]["question"]),
            "answer": shown(rows[0]["answer"]),
            "rows": [
                [
                    row["index"],
                    row["reward"],
                    row["advantage"],
                    row.get("tokens"),
                    bool(row.get("truncated")),
                    shown(row["response"]),
                ]
                for row in rows
            ],
        }
        room -= len(as_json(visit).encode())
        if room < 0 and count:
            break
        found.setdefault(key, []).append(visit)
        count += len(rows)
    return found, count


def _note(prompts: tuple[int, int], per_prompt: int | None, responses: tuple[int, int]) -> str:
    sentences = []
    if prompts[0] < prompts[1]:
        sentences.append(
            f"{prompts[0]:,} of {prompts[1]:,} prompts are shown: those whose responses were kept "
            "last, then those visited most."
        )
    if per_prompt is not None:
        sentences.append(f"Of a prompt's visits at most {per_prompt} are shown, evenly spaced.")
    if responses[0] < responses[1]:
        sentences.append(
            f"The newest {responses[0]:,} of {responses[1]:,} kept responses are shown; all are in "
            "samples."
        )
    return " ".join(sentences)
