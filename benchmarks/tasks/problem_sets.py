"""Problem sets: running sums by how hard they are and how long answers are, and other tasks.

Models and problems that are not built in are made on their first use.
"""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from rollwise.tasks import make_running_sums
from rollwise.tasks.running_sums import HELDOUT_SEED
from rollwise.tasks.writers import write_problems

Settings = dict[str, Any]

BY_TERMS: dict[str, Settings] = {"2 to 10 terms": {}, "7 to 10 terms": {"min_terms": 7}}
SIZES = ("0.1 M", "1.3 M", "5 M")
"""Parameters of models for sums; the built-in one has 0.33 M."""
BY_SIZE = {f"{terms}, {size}": (terms, size) for terms in BY_TERMS for size in SIZES}
RATES = {"": 1.0, "0.1 M": 0.5, "1.3 M": 0.5, "5 M": 0.3}
"""What learning rates are multiplied by at each size; "" is the built-in model.

Those of larger models follow the inverse of their width, as the rates of weights between layers do
(Yang et al., Tensor Programs V, arXiv 2203.03466). For the small one that would be 1.5, at which
GRPO and SPO unlearn hard sums.
"""
TOKENS = {"5 M": 300_000}
"""Response tokens of a run, where it is shorter than elsewhere: one takes up to eight minutes."""
BIMODAL = "bimodal"
EDITS = "string edits"
PATHS = "grid paths"
MODULES = {EDITS: "string_edits", PATHS: "grid_paths"}
"""What makes the problems of a set that has a base model of its own."""
PROBLEM_SETS = (*BY_TERMS, BIMODAL, *MODULES, *BY_SIZE)

MEASURED = 5120
SHARES = {"hard": 0.65, "easy": 0.25, "between": 0.10}
HARD, EASY = 1 / 16, 13 / 16
TRAINING, HELDOUT, CHOOSING = 1024, 256, 256
CHOOSING_SEED = 30_000_000
"""Of the sums by which settings are chosen."""


def settings_of(problems: str, folder: Path, choosing: bool = False) -> Settings:
    """Return the settings of `rollwise train` for a problem set.

    Args:
        problems: One of `PROBLEM_SETS`.
        folder: Keeps models and problems.
        choosing: Evaluate on 256 other held-out problems, by which settings can be chosen.
    """
    if problems in MODULES:
        module = importlib.import_module(MODULES[problems])
        data = folder / folder_name(problems)
        made = model_settings(problems, folder, module.LONGEST) | {"grading": {"type": "exact"}}
        if not (data / "choosing.parquet").exists():
            write_made(data, module.make_problems)
        return made | {"data": files_in(data, choosing)}
    if problems == BIMODAL:
        if not (folder / "choosing.parquet").exists():
            write_bimodal(folder)
        return {"data": files_in(folder, choosing)}
    terms, size = BY_SIZE.get(problems, (problems, ""))
    settings = {"data": dict(BY_TERMS[terms])}
    if choosing:
        settings["data"]["heldout"] = str(write_sums(terms, folder))
    return settings | (model_settings(f"running sums, {size}", folder) if size else {})


def rate_factor(problems: str) -> float:
    """Return what the learning rates of all methods are multiplied by on a set."""
    _, size = BY_SIZE.get(problems, (problems, ""))
    return RATES[size]


def run_length(problems: str) -> Settings:
    """Return the response tokens of a run on a set, if they are fewer than on others."""
    _, size = BY_SIZE.get(problems, (problems, ""))
    return {"tokens": TOKENS[size]} if size in TOKENS else {}


def folder_name(name: str) -> str:
    """Return the name of the folder of a model or a set."""
    return name.replace(",", "").replace(" ", "-")


def files_in(folder: Path, choosing: bool) -> Settings:
    """Return the settings of `data` for the files of a set."""
    heldout = "choosing" if choosing else "heldout"
    return {"train": str(folder / "train.parquet"), "heldout": str(folder / f"{heldout}.parquet")}


def model_settings(name: str, folder: Path, longest: int = 48) -> Settings:
    """Return the settings for a base model, which is made if need be."""
    from base_models import make

    return {
        "model": {"path": str(make(name, folder)), "cpu_threads": 1},
        "engine": {"max_new_tokens": longest, "batch_size": 512},
    }


def write_made(folder: Path, make_problems: Any) -> None:
    """Write training, held-out and choosing problems that are made."""
    problems = make_problems(TRAINING + HELDOUT + CHOOSING, np.random.default_rng(0))
    for name, count in (("train", TRAINING), ("heldout", HELDOUT), ("choosing", CHOOSING)):
        write_problems(folder / f"{name}.parquet", problems[:count], problems[0].source)
        problems = problems[count:]


def write_sums(terms: str, folder: Path) -> Path:
    """Write sums to choose settings by, none of which is held out; return the file."""
    path = folder / f"{folder_name(terms)}-choosing.parquet"
    if not path.exists():
        given = BY_TERMS[terms]
        heldout = make_running_sums(HELDOUT, **given, seed=HELDOUT_SEED)
        excluded = frozenset(problem.key for problem in heldout)
        problems = make_running_sums(CHOOSING, **given, seed=CHOOSING_SEED, excluded=excluded)
        write_problems(path, problems, "running-sums")
    return path


def write_bimodal(folder: Path) -> None:
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
    chosen, further = [], []
    for kind, share in SHARES.items():
        drawn = rng.permutation(np.flatnonzero(members[kind]))
        first = round(share * (TRAINING + HELDOUT))
        chosen.append(drawn[:first])
        further.append(drawn[first : first + round(share * CHOOSING)])
    shuffled = rng.permutation(np.concatenate(chosen))
    pq.write_table(table.take(shuffled[:TRAINING]), folder / "train.parquet")
    pq.write_table(table.take(shuffled[TRAINING:]), folder / "heldout.parquet")
    pq.write_table(table.take(np.concatenate(further)), folder / "choosing.parquet")
    shutil.rmtree(measured)
