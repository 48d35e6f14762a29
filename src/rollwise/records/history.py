"""What earlier runs found of the prompts of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rollwise.beliefs import offsets_after
from rollwise.errors import ConfigError
from rollwise.records.folder import RunFolder
from rollwise.sampling.draws import Key


def with_history(
    columns: Mapping[str, Sequence[Any]], folders: Sequence[str], keys: Sequence[Key]
) -> Mapping[str, Sequence[Any]]:
    """Add the column `history` of `offsets_in_earlier_runs` to those of data, if there are runs."""
    if not folders:
        return columns
    return {**columns, "history": offsets_in_earlier_runs(folders, keys)}


def offsets_in_earlier_runs(folders: Sequence[str], keys: Sequence[Key]) -> list[float | None]:
    """Return how much easier than others each of P prompts was in earlier runs, in logits.

    The runs may be of any trainer; where two know a prompt, the later one counts. None where no
    run has drawn it.

    Raises:
        ConfigError: A folder has no `visits/`, or none of these prompts.
        RunError: A file is broken.
    """
    place = {str(key): number for number, key in enumerate(keys)}
    found = np.full(len(place), np.nan)
    for folder in folders:
        table = RunFolder(Path(folder).expanduser()).read_visits()
        if table is None:
            raise ConfigError(f"`belief.history`: {folder} has no `visits/` of a run")
        columns = (table[name].to_pylist() for name in ("step", "key", "correct", "drawn"))
        rows = np.array(
            [
                (step, place[key], correct, drawn)
                for step, key, correct, drawn in zip(*columns, strict=True)
                if key in place and drawn
            ],
            dtype=np.int64,
        ).reshape(-1, 4)
        if not len(rows):
            raise ConfigError(
                f"`belief.history`: {folder} has drawn none of the {len(place)} prompts of this "
                "run; is it of other data?"
            )
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        steps = np.split(rows, np.flatnonzero(np.diff(rows[:, 0])) + 1)
        visits = ((step[:, 1], step[:, 2], step[:, 3]) for step in steps)
        offsets = offsets_after(len(place), visits)
        found = np.where(np.isnan(offsets), found, offsets)
    return [None if np.isnan(offset) else float(offset) for offset in found]
