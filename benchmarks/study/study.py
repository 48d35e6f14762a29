"""The study: what each method reaches for its tokens, each with the learner that suits it best.

Every method learns from 256 responses a step with the built-in learner. How it learns (the
average, the size of gradients, the number of updates, the learning rate, the warm-up, the bound on
updates) is chosen for each method by itself: from the same candidates, in the same order, on seeds
and held-out problems that are not reported.

    python benchmarks/study/study.py choose [METHOD ...]      # writes study/chosen.json
    python benchmarks/study/study.py compare [SET ...]        # tables and curves in study/SET
    python benchmarks/study/study.py factorial                # what each part gives
    python benchmarks/study/study.py per-step [SET ...]       # the papers' methods at equal steps

`--quick` makes short runs with one seed in a temporary folder. What is recorded is not repeated, so
that each command can be interrupted. A run takes one to two minutes of one core.
"""

import argparse
import json
import os
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rollwise.commands.compare import compare, file_name
from rollwise.commands.compare_runs import PlannedRun, Records, train_missing
from rollwise.config import CompareConfig, make_settings
from rollwise.config.base import merge, nested
from rollwise.statistics.curves import Curve

sys.path.append(str(Path(__file__).parents[1] / "tasks"))

from problem_sets import PROBLEM_SETS, rate_factor, run_length, settings_of

STUDY = Path(__file__).parent
ROOT = STUDY.parents[1]
METHODS = tomllib.loads((STUDY / "methods.toml").read_text(encoding="utf-8"))
CHOSEN = STUDY / "chosen.json"
MAIN_SETS = ("7 to 10 terms", "bimodal", "2 to 10 terms")
"""The sets that settings are chosen on: a method has one choice for all sets, as a user has."""

DEFAULT = "default of rollwise train"

Values = Mapping[str, Any]


def slug(text: str) -> str:
    """Turn the name of a set or a method into that of a folder."""
    return text.replace(",", "").replace(" ", "-").replace("'", "")


class Choosing:
    """Chooses how methods learn: one setting after another, each by its mean over the sets.

    Args:
        folder: Records runs, in a folder for each method.
        problems: Where problem sets are kept.
        workers: Runs at a time.
        quick: Make short runs on the first set alone.
    """

    def __init__(self, folder: Path, problems: Path, workers: int, quick: bool) -> None:
        self.folder, self.workers, self.quick = folder, workers, quick
        self.bases = {
            name: merge(METHODS["base"], settings_of(name, problems, choosing=True))
            for name in (MAIN_SETS[:1] if quick else MAIN_SETS)
        }

    def choose(self, method: str) -> dict[str, Any]:
        """Try the candidates of each setting in turn; return what is chosen, and every trial."""
        fixed = METHODS["fixed"].get(method, [])
        candidates = {k: c for k, c in METHODS["candidates"].items() if k not in fixed}
        best = {k: v for c in candidates.values() for k, v in c["values"][c["start"]].items()}
        trials = []
        for candidate in candidates.values():
            tokens = candidate.get("tokens", METHODS["choosing"]["tokens"])
            values = [best | value for value in candidate["values"]]
            scores = [self.score(method, each, tokens) for each in values]
            for value in candidate.get("narrower", []):
                if scores[0] == max(scores):
                    values.insert(0, best | value)
                    scores.insert(0, self.score(method, values[0], tokens))
            for value in candidate.get("wider", []):
                if scores[-1] == max(scores):
                    values.append(best | value)
                    scores.append(self.score(method, values[-1], tokens))
            best = values[int(np.argmax(scores))]
            scored = zip(values, scores, strict=True)
            trials += [{"tokens": tokens, "values": v, "score": s} for v, s in scored]
        return {"chosen": best, "trials": trials}

    def score(self, method: str, values: Values, tokens: int) -> float:
        """Return the mean accuracy over sets and seeds, of the last two evaluations of each run."""
        records = Records(self.folder / slug(method))
        short = ",".join(f"{name}={value}" for name, value in values.items())
        length = {"tokens": 10_000 if self.quick else tokens, "evaluations": 4}
        of_length = short if tokens == METHODS["choosing"]["tokens"] else f"{short},{tokens} tokens"
        runs = []
        for problems, base in self.bases.items():
            settings = {"base": base, "methods": METHODS["methods"], **length}
            config = make_settings(CompareConfig, settings)
            runs += [
                PlannedRun(
                    f"{slug(problems)}/seed-{seed}/{of_length}",
                    config.run_settings(method, seed, values),
                )
                for seed in METHODS["choosing"]["seeds"]
            ]
        for _ in train_missing(runs, records, min(self.workers, len(runs))):
            pass
        curves = [records.curve(run) for run in runs]
        if not all(curves):
            raise SystemExit("stopped; the same command resumes")
        score = float(np.mean([curve.accuracy[-2:].mean() for curve in curves if curve]))
        print(f"{method}: {score:.3f} with {of_length}", flush=True)
        return score


def with_chosen(method: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a method as it is compared, with the learner that it chose."""
    learner = chosen[method]["chosen"]
    kept = [METHODS["candidates"][name] for name in METHODS["fixed"].get(method, [])]
    names = {name for candidate in kept for value in candidate["values"] for name in value}
    layers = [nested(item) for item in learner.items() if item[0] not in names]
    return reduce(merge, layers, METHODS["methods"][method])


def at_its_size(settings: Mapping[str, Any], problems: str) -> dict[str, Any]:
    """Scale the learning rate of every method, and the usual length, by the size of a model."""
    methods = {}
    for name, own in settings["methods"].items():
        rate = merge(settings["base"], own)["learner"]["learning_rate"] * rate_factor(problems)
        methods[name] = merge(own, {"learner": {"learning_rate": rate}})
    length = run_length(problems) if settings.get("tokens") == METHODS["tokens"] else {}
    return {**settings, **length, "methods": methods}


def compare_on(problems: str, settings: Mapping[str, Any], folder: Path) -> None:
    """Train what is missing on one problem set, and write tables and curves."""
    base = {"base": settings_of(problems, STUDY.relative_to(ROOT) / "problems")}
    compare([at_its_size(settings, problems), base], folder, resume=False, console=Console())


def factorial_methods() -> dict[str, dict[str, Any]]:
    """Lay out the factorial: group or single × baseline × choice × gradients × average.

    Half of the cells are run, those whose levels have an even sum of places, so that each main
    effect is seen.
    """
    factors, cells = METHODS["factorial"], {}
    for n, of_n in factors["responses"].items():
        kinds = ("baseline", "choice", "gradients", "average")
        common = merge(of_n["settings"], {"learner": factors["learner"]})
        levels = (of_n["baselines"], *(list(factors[kind]) for kind in kinds[1:]))
        for places in product(*(range(len(names)) for names in levels)):
            if sum(places) % 2 == 0:
                names = [of_kind[place] for of_kind, place in zip(levels, places, strict=True)]
                layers = [factors[kind][name] for kind, name in zip(kinds, names, strict=True)]
                cells[f"n={n} {' '.join(names)}"] = reduce(merge, layers, common)
    return cells


def part_settings(part: str, only: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a comparison: its length and its methods."""
    if part == "per-step":
        return tomllib.loads((STUDY / "per-step.toml").read_text(encoding="utf-8"))
    settings = {name: METHODS[name] for name in ("tokens", "evaluations", "seeds", "base")}
    if part == "factorial":
        return settings | METHODS["factorial"]["length"] | {"methods": factorial_methods()}
    chosen = json.loads(CHOSEN.read_text(encoding="utf-8"))
    names = only or [name for name in METHODS["methods"] if name in chosen]
    return settings | {"methods": {name: with_chosen(name, chosen) for name in names}}


def curves_of(problems: str) -> dict[str, list[Curve]]:
    """Read the recorded curves of a set: of each method with enough seeds, in their order."""
    found, names = defaultdict(list), {file_name(name): name for name in METHODS["methods"]}
    path = STUDY / slug(problems) / "curves.jsonl"
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    for record in sorted(records, key=lambda record: record["settings"]["seed"]):
        found[names[Path(record["run"]).parts[-2]]].append(Curve.from_json(record["curve"]))
    return {name: curves for name, curves in found.items() if len(curves) >= METHODS["seeds"]}


def main() -> None:
    """Run one part of the study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("choose", "compare", "factorial", "per-step"))
    parser.add_argument("names", nargs="*", help="methods to choose for, or problem sets")
    parser.add_argument("--quick", action="store_true", help="short runs in a temporary folder")
    parser.add_argument("--only", default="", help="some of the methods, separated by commas")
    parser.add_argument("--seeds", type=int, help="runs of each method (default: methods.toml's)")
    parser.add_argument("--tokens", type=int, help="of each run, in a folder of its own")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    given = parser.parse_intermixed_args()
    known = METHODS["methods"] if given.part == "choose" else PROBLEM_SETS
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"there is no {', '.join(unknown)}; there are: {'; '.join(known)}")
    only = [name for name in given.only.split(",") if name]
    if given.part == "compare":
        chosen = json.loads(CHOSEN.read_text(encoding="utf-8")) if CHOSEN.exists() else {}
        compared = only or list(chosen) or ["any method"]
        if missing := [name for name in compared if name not in chosen]:
            parser.error(f"nothing is chosen for {'; '.join(missing)}: run `study.py choose` first")
    os.chdir(ROOT)  # so that records name files as seen from there
    study = STUDY.relative_to(ROOT)
    with tempfile.TemporaryDirectory() as temporary:
        parent = Path(temporary) if given.quick else study
        if given.part == "choose":
            choosing = Choosing(parent / "choosing", study / "problems", given.workers, given.quick)
            for method in given.names or METHODS["methods"]:
                result = choosing.choose(method)
                if not given.quick:  # read again: another process may have chosen meanwhile
                    found = json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}
                    text = json.dumps(found | {method: result}, indent=1)
                    CHOSEN.write_text(text + "\n", encoding="utf-8")
            return
        settings = part_settings(given.part, only)
        settings["workers"] = given.workers
        if given.seeds:
            settings["seeds"] = given.seeds
        if given.tokens:
            settings["tokens"] = given.tokens
        if given.quick:
            settings |= {"seeds": 1} | ({"steps": 5} if "steps" in settings else {"tokens": 20_000})
        for problems in given.names or MAIN_SETS:
            print(f"\n# {problems}\n")
            name = slug(problems) + ("" if given.part == "compare" else f"-{given.part}")
            name += f"-{given.tokens}-tokens" if given.tokens else ""
            compare_on(problems, settings, parent / name)


if __name__ == "__main__":
    main()
