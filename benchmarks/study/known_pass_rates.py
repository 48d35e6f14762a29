"""What single responses would gain if every pass rate were known: what a better belief could give.

The default of `rollwise train` learns with a belief that knows more than a method can: before
every third step, eight responses to each of the 1,024 training prompts are drawn on the side, which
count as nothing (older ones weigh half as much). It chooses the prompts nearest to a pass rate of
one half, without exploration, and compares responses with the measured pass rates. The learner, the
problems and the seeds are those of `study.py compare`, whose records it is compared with.

    python benchmarks/study/known_pass_rates.py [--quick] [--seeds N] [SET ...]

*Tokens* is the share that a method needs to end where SPO ends, as in the study (≥: a run did
not). What is recorded in study/SET-known is not repeated; a run takes about four times as long as
in the study.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from study import (
    CHOSEN,
    DEFAULT,
    MAIN_SETS,
    METHODS,
    PROBLEM_SETS,
    ROOT,
    STUDY,
    at_its_size,
    curves_of,
    settings_of,
    slug,
    with_chosen,
)

from rollwise.beliefs import Belief
from rollwise.commands.compare_runs import PlannedRun, Records
from rollwise.config import CompareConfig, make_config, make_settings
from rollwise.config.base import merge
from rollwise.records import RunFolder
from rollwise.sampling import FixedCount, RolloutSession, Rounds
from rollwise.statistics.curves import Curve, compare_methods
from rollwise.training.loop import train
from rollwise.training.run import Run, start_run

KNOWN, RIVAL = "known pass rates", "SPO"
EVERY, DRAWN = 3, 8


@dataclass(eq=False)
class Measured(Belief):
    """Believes what responses drawn on the side have shown."""

    kept = ("correct", "drawn")

    def __post_init__(self) -> None:
        self.correct, self.drawn = np.zeros(self.total), np.zeros(self.total)

    def believe(self, indices: Any) -> tuple[Any, Any]:
        """Return the measured pass rates, with two responses of the set's mean."""
        drawn = self.drawn[indices] + 2.0
        return (self.correct[indices] + 2.0 * self.correct.sum() / self.drawn.sum()) / drawn, drawn

    def learn(self, indices: Any, correct: Any, drawn: Any) -> None:
        """Learn nothing of the responses that are trained on."""


class Measuring:
    """Watches a run, and measures the pass rates of its prompts every few steps."""

    stop_requested = False

    def __init__(self, run: Run) -> None:
        self.run = run

    def on_step(self, metrics: Any) -> None:
        """Measure before the first step, and after every third."""
        print(f"step {metrics['step']}", end="\r", file=sys.stderr, flush=True)
        if metrics["step"] % EVERY:
            return
        run, belief = self.run, self.run.sampler.belief
        rounds = Rounds(size=DRAWN, rounds=1)
        seed = run.config.seed + 1_000_000  # other random numbers than training has
        session = RolloutSession(run.sampler.keys, FixedCount(DRAWN), rounds, seed, metrics["step"])
        run.roll_out(session)
        correct = np.array([pool.positives for pool in session.pools.values()])
        belief.correct, belief.drawn = belief.correct / 2 + correct, belief.drawn / 2 + DRAWN


def known(problems: str, seed: int, folder: Path, tokens: int, evaluations: int) -> Curve | None:
    """Train with known pass rates, unless that is recorded."""
    own = with_chosen(DEFAULT, json.loads(CHOSEN.read_text(encoding="utf-8")))
    knowing = {"belief": {"type": f"{Path(__file__).stem}:Measured"}, "prompts": {"exploration": 0}}
    base = merge(METHODS["base"], settings_of(problems, STUDY.relative_to(ROOT) / "problems"))
    settings = {"base": base, "methods": {KNOWN: merge(own, knowing)}, "tokens": tokens}
    settings = at_its_size(settings, problems) | {"evaluations": evaluations}
    config = make_settings(CompareConfig, settings)
    run = PlannedRun(f"seed-{seed}", config.run_settings(KNOWN, seed, {}))
    records = Records(folder)
    if (curve := records.curve(run)) is None:
        shutil.rmtree(folder / run.name, ignore_errors=True)  # it was interrupted
        state = start_run(make_config(run.settings), RunFolder(folder / run.name))
        with state.built:
            train(state, Measuring(state))
        records.add(run)
        curve = records.curve(run)
    return curve


def main() -> None:
    """Print a table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=MAIN_SETS[:1], help="problem sets")
    parser.add_argument("--seeds", type=int, default=METHODS["seeds"])
    parser.add_argument("--quick", action="store_true", help="a short run in a temporary folder")
    given = parser.parse_args()
    recorded = {
        p: curves_of(p) for p in PROBLEM_SETS if (STUDY / slug(p) / "curves.jsonl").exists()
    }
    known_sets = [p for p, methods in recorded.items() if {RIVAL, DEFAULT} <= methods.keys()]
    if unknown := [name for name in given.sets if name not in known_sets]:
        parser.error(
            f"nothing to compare with is recorded of {'; '.join(unknown)}; there is of: "
            f"{'; '.join(known_sets)}"
        )
    if given.seeds < 1:
        parser.error(f"--seeds must be at least 1, got {given.seeds}")
    os.chdir(ROOT)  # so that records name files as seen from there
    tokens, evaluations = (
        (10_000, 1) if given.quick else (METHODS["tokens"], METHODS["evaluations"])
    )
    results = {}
    print("| set | method | accuracy at the end | tokens |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for problems in given.sets[:1] if given.quick else given.sets:
            folder = Path(temporary) if given.quick else STUDY / f"{slug(problems)}-known"
            seeds = range(1 if given.quick else given.seeds)
            curves = {n: dict(enumerate(recorded[problems][n])) for n in (RIVAL, DEFAULT)}
            curves[KNOWN] = {s: known(problems, s, folder, tokens, evaluations) for s in seeds}
            for name, found in compare_methods(curves, RIVAL).results.items():
                reached = found.reached["tokens"]
                share, bound = reached.share, "≥ " * (reached.runs < len(found.seeds))
                results[f"{problems}: {name}"] = vars(share)
                shown = f"{bound}{share.value:.2f} [{share.low:.2f}, {share.high:.2f}]"
                print(f"| {problems} | {name} | {found.accuracy.value:.3f} | {shown} |", flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
