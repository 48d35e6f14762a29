"""Problem sets of running sums that differ in how hard they are, and in how long answers are."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

Settings = dict[str, Any]

BY_TERMS: dict[str, Settings] = {"2 to 10 terms": {}, "7 to 10 terms": {"min_terms": 7}}
BIMODAL = "bimodal"
APART = "lengths apart"
PROBLEM_SETS = (*BY_TERMS, BIMODAL, APART)

MEASURED = 5120
SHARES = {"hard": 0.65, "easy": 0.25, "between": 0.10}
HARD, EASY = 1 / 16, 13 / 16
TRAINING, HELDOUT = 1024, 256


def settings_of(problems: str, folder: Path) -> Settings:
    """Return the settings of `rollwise train` for a problem set; `folder` keeps what it needs."""
    if problems in BY_TERMS:
        return {"data": BY_TERMS[problems]}
    if problems == APART:
        from padded_sums import padded_settings

        return padded_settings(folder / "lengths-apart")
    train, heldout = folder / "train.parquet", folder / "heldout.parquet"
    if not heldout.exists():
        write_bimodal(folder, train, heldout)
    return {"data": {"train": str(train), "heldout": str(heldout)}}


def write_bimodal(folder: Path, train: Path, heldout: Path) -> None:
    """Write problems of which the model solves most either hardly ever or nearly always.

    `rollwise prepare` measures the pass rates of 5,120 sums of 2 to 10 terms by 16 responses each.
    65 % of the set have a pass rate of at most 1/16, 25 % of at least 13/16, 10 % one in between.
    About seven of ten groups of four responses then have all the same reward.
    """
    measured = folder / "measured"
    command = [sys.executable, "-m", "rollwise", "prepare", "--data.problems", str(MEASURED)]
    subprocess.run([*command, "--output", str(measured)], check=True, stdout=subprocess.DEVNULL)
    table = pq.read_table(measured / "prepared.parquet")
    rates = table["pass_rate"].to_numpy()
    members = {"hard": rates <= HARD, "easy": rates >= EASY}
    members["between"] = ~(members["hard"] | members["easy"])
    rng = np.random.default_rng(0)
    chosen = np.concatenate(
        [
            rng.permutation(np.flatnonzero(members[kind]))[: round(share * (TRAINING + HELDOUT))]
            for kind, share in SHARES.items()
        ]
    )
    chosen = rng.permutation(chosen)
    pq.write_table(table.take(chosen[:TRAINING]), train)
    pq.write_table(table.take(chosen[TRAINING:]), heldout)
    shutil.rmtree(measured)
