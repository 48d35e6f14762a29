"""Recorded rewards: the responses that were drawn for each prompt, without the model."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rollwise.errors import DataError
from rollwise.sampling.draws import Key
from rollwise.simulate.pass_rates import RatedPrompt
from rollwise.tasks.readers import level_of
from rollwise.tasks.tables import Row, read_table

WANTED = {"key", "level", "reward", "acc", "tokens"}
"""Columns that are read."""
LARGEST = 1e9
"""A larger reward is a slip: sums of squares of such rewards are not finite."""


@dataclass(frozen=True)
class Recorded:
    """The D responses that were drawn for one prompt, in order.

    Attributes:
        rewards: The reward of each, shape (D,), D ≥ 1.
        tokens: The number of tokens of each, shape (D,); empty if unknown.
        accs: What is compared with the threshold, shape (D,); by default the rewards.
    """

    rewards: NDArray[np.float64]
    tokens: NDArray[np.int64]
    accs: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if not len(self.rewards) or not (np.abs(self.rewards) <= LARGEST).all():
            raise ValueError(
                f"there must be rewards, all finite and at most {LARGEST:g} in size, got "
                f"{self.rewards.tolist()}"
            )
        if len(self.tokens) not in (0, len(self.rewards)):
            raise ValueError(
                f"there must be as many token counts as rewards, got {len(self.tokens)} and "
                f"{len(self.rewards)}"
            )
        if len(self.tokens) and self.tokens.min() < 1:
            raise ValueError(f"a response has at least 1 token, got {self.tokens.min()}")

    def __len__(self) -> int:
        return len(self.rewards)

    def correct(self, threshold: float) -> NDArray[np.bool_]:
        """Which responses are correct, shape (D,)."""
        return (self.rewards if self.accs is None else self.accs) > threshold


@dataclass(frozen=True)
class RecordedLengths:
    """Lengths drawn from those that were recorded for the same prompt, with replacement.

    Only responses that are likewise correct (an `acc` above `threshold`), or likewise incorrect,
    count; if a prompt has none of that kind, all of its responses do.
    """

    prompts: Mapping[Key, Recorded]
    longest: int
    threshold: float

    def length(self, uniform: float, correct: bool, key: Key) -> tuple[int, bool]:
        """Return the tokens at the quantile `uniform`, and whether the response was cut."""
        recorded = self.prompts[key]
        of_kind = recorded.tokens[recorded.correct(self.threshold) == correct]
        lengths = of_kind if len(of_kind) else recorded.tokens
        wanted = int(lengths[int(uniform * len(lengths))])
        return min(wanted, self.longest), wanted > self.longest


@dataclass(frozen=True)
class RecordedPrompt:
    """A prompt, and what was drawn for it."""

    key: str
    recorded: Recorded  # in the order in which they were drawn
    level: int | None = None  # its labelled difficulty


def rated(prompt: RecordedPrompt, threshold: float) -> RatedPrompt:
    """Return a prompt with its measured pass rate: an `acc` above `threshold` is correct."""
    correct = prompt.recorded.correct(threshold)
    measured = float(correct.sum()), float(len(correct))
    return RatedPrompt(prompt.key, float(correct.mean()), prompt.level, measured)


def read_recorded(path: str | Path) -> list[RecordedPrompt]:
    """Read the rewards of responses, and their lengths in tokens if recorded.

    `path` is the folder of `rollwise prepare` (the problems that it chose) or of a run, or a
    parquet or JSON Lines file with a row for each response: `key`, `reward`, and `acc`, `tokens`
    and `level` where it has them. A `DataError` names the place and the value where it cannot be
    read, or holds none of these.
    """
    found = Path(path).expanduser()
    if not found.is_dir():
        return _of_responses(found, _rows(found))
    folders = (found, found / "responses", found / "samples")
    parts = [part for folder in folders for part in folder.glob("part-*.parquet")]
    if not parts:
        raise DataError(
            f"{found}: it is neither the folder of `rollwise prepare`, with its responses, nor of "
            "a run with samples"
        )
    prompts = _of_responses(found, [row for part in sorted(parts) for row in _rows(part)])
    chosen = found / "prepared.parquet"
    if not chosen.exists():
        return prompts
    table = read_table(chosen, "", None, WANTED)
    levels = {row.text("key"): level_of(row) for row in table.rows}
    return [replace(prompt, level=levels[prompt.key]) for prompt in prompts if prompt.key in levels]


def _rows(path: Path) -> Iterable[Row]:
    table = read_table(path, "", None, WANTED)
    if not {"key", "reward"} <= set(table.columns):
        raise DataError(
            f"{path}: it needs columns `key` and `reward`, with a row for each response; its "
            f"columns are {', '.join(table.columns) or 'none'}"
        )
    return table.rows


def _of_responses(path: Path, rows: Iterable[Row]) -> list[RecordedPrompt]:
    of_prompts: dict[str, list[Row]] = {}
    for row in rows:
        of_prompts.setdefault(row.text("key"), []).append(row)
    found = [_of_prompt(key, own) for key, own in of_prompts.items()]
    if not found:
        raise DataError(f"{path} has no rows")
    if len({bool(len(prompt.recorded.tokens)) for prompt in found}) > 1:
        raise DataError(f"{path}: some prompts have lengths, others have none")
    return found


def _of_prompt(key: str, rows: Sequence[Row]) -> RecordedPrompt:
    rewards = [_number(row, "reward") for row in rows]
    accs = [_number(row, "reward" if row.cells.get("acc") is None else "acc") for row in rows]
    tokens = [_number(row, "tokens") for row in rows if row.cells.get("tokens") is not None]
    for row, count in zip(rows, tokens, strict=False):
        if not count.is_integer() or abs(count) > 2**53:
            raise row.error("`tokens` must be a whole number", row.cells["tokens"])
    try:
        recorded = Recorded(np.array(rewards), np.array(tokens).astype(np.int64), np.array(accs))
    except ValueError as error:
        raise DataError(f"{rows[0].place}: {error}") from None
    return RecordedPrompt(key, recorded, level_of(rows[0]))


def _number(row: Row, name: str) -> float:
    value = row.cells.get(name)
    with contextlib.suppress(OverflowError):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    raise row.error(f"`{name}` must be a number", value)
