"""The prompts of a run, as the browser in its report shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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


def prompt_data(folder: RunFolder, threshold: float) -> dict[str, Any]:
    """Gather the prompts of a run with their visits, newest responses first.

    A run of a release that recorded no visits has those of the prompts whose responses it recorded.

    Args:
        folder: Of the run.
        threshold: A response is correct where its reward is above this.

    Returns:
        `prompts`, and `note`, which says in words what was left out.
    """
    rows, recorded = folder.read_newest_samples(MOST_RESPONSES)
    samples: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        samples.setdefault((row["key"], row["step"]), []).append(row)
    visits = folder.read_visits()
    known = (
        _Visits.of_table(visits) if visits is not None else _Visits.of_samples(samples, threshold)
    )
    chosen = known.choose(list(dict.fromkeys(key for key, _ in reversed(samples))))
    responses, shown_responses = _responses(samples, set(chosen))
    per_prompt = max(2, MOST_VISITS // max(1, len(chosen)))
    prompts = []
    for key in chosen:
        own = responses.get(key, [])
        question = own[0]["question"] if own else known.questions[key]
        prompts.append(
            {
                "key": shown(key),
                "question": question if own else shown(question),
                "answer": own[0]["answer"] if own else None,
                "visited": known.count(key),
                "correct": known.total(key, "correct"),
                "drawn": known.total(key, "drawn"),
                "visits": known.columns(key, per_prompt),
                "responses": [
                    {name: each[name] for name in ("step", "exit_reason", "rows")} for each in own
                ],
            }
        )
    thinned = any(known.count(key) > per_prompt for key in chosen)
    note = _note(
        (len(chosen), len(known.questions)),
        per_prompt if thinned else None,
        (shown_responses, recorded),
        visits is not None,
    )
    return {"prompts": prompts, "note": note, "threshold": threshold}


class _Visits:
    """Visits by prompt.

    Args:
        rows: For each prompt, its visits in the order of the steps, as columns.
        questions: Of each prompt.
    """

    def __init__(
        self, columns: Mapping[str, Any], places: Mapping[str, Any], questions: Mapping[str, str]
    ) -> None:
        self._columns, self._places, self.questions = columns, places, questions
        self._counts = {name: np.asarray(columns[name]) for name in ("correct", "drawn")}

    @classmethod
    def of_table(cls, table: Any) -> "_Visits":
        keys = table["key"].combine_chunks().dictionary_encode()
        names, codes = keys.dictionary.to_pylist(), keys.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        places = dict(zip(names, np.split(order, ends[:-1]), strict=True))
        last = table["question"].take([int(place[-1]) for place in places.values()]).to_pylist()
        columns = {name: table[name].combine_chunks() for name in COLUMNS}
        return cls(columns, places, dict(zip(names, last, strict=True)))

    @classmethod
    def of_samples(
        cls, samples: Mapping[tuple[str, int], list[Row]], threshold: float
    ) -> "_Visits":
        import pyarrow as pa

        rows: list[tuple[Any, ...]] = []
        questions: dict[str, str] = {}
        places: dict[str, list[int]] = {}
        for place, ((key, step), found) in enumerate(samples.items()):
            correct = sum(row["reward"] > threshold for row in found)
            trained = sum(row["advantage"] is not None for row in found)
            reason = found[0]["exit_reason"]
            rows.append((step, correct, len(found), None, None, trained, reason))
            questions[key] = found[0]["question"]
            places.setdefault(key, []).append(place)
        columns = {
            name: pa.array([row[place] for row in rows]) for place, name in enumerate(COLUMNS)
        }
        return cls(columns, places, questions)

    def count(self, key: str) -> int:
        return len(self._places[key])

    def total(self, key: str, name: str) -> int:
        """Add up a count over all visits of a prompt."""
        return int(self._counts[name][self._places[key]].sum())

    def choose(self, first: Sequence[str]) -> list[str]:
        """Return the prompts that are shown: these, and then those with most visits."""
        known = [key for key in first if key in self._places]
        others = sorted(self._places, key=lambda key: -len(self._places[key]))
        return list(dict.fromkeys([*known, *others]))[:MOST_PROMPTS]

    def columns(self, key: str, wanted: int) -> dict[str, list[Any]]:
        places = [int(self._places[key][at]) for at in evenly(self.count(key), wanted)]
        return {name: column.take(places).to_pylist() for name, column in self._columns.items()}


def _responses(
    samples: Mapping[tuple[str, int], list[Row]], wanted: set[str]
) -> tuple[dict[str, list[Row]], int]:
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


def _note(
    prompts: tuple[int, int],
    per_prompt: int | None,
    responses: tuple[int, int],
    has_visits: bool,
) -> str:
    sentences = []
    if not has_visits:
        sentences.append(
            "An earlier release recorded this run: only prompts whose responses were kept are "
            "known, without what was believed of them."
        )
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
