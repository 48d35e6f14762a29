"""Print the study's table: each method's held-out accuracy at the end, on each problem set.

    python benchmarks/study/study_table.py [--seeds 8] [--baseline SPO] [--all] [SET ...]
    python benchmarks/study/study_table.py --chosen    # how each learns, and its scores

The first shows what `study.py compare` has recorded of the methods with so many seeds: the
interquartile mean of four seeds or more, the mean of fewer; and the mean difference from the
baseline on the same seeds, over the sets, bold where its 95 % interval leaves out 0. `--all` shows
means with their intervals (Student's t) and the worst seed, and how many seeds end above the
baseline. The last line is JSON. The other shows what `study.py choose` has chosen, and the scores
of the runs by which it chose.
"""

import argparse
import json
from collections.abc import Sequence

import numpy as np
from study import CHOSEN, MAIN_SETS, METHODS, STUDY, curves_of, slug

from rollwise.statistics import Estimate
from rollwise.statistics.curves import interquartile_mean, mean_over_seeds


def at_the_end(problems: str, seeds: int) -> dict[str, list[float]]:
    """Return the accuracy of each method's first runs at the end, in the order of their seeds."""
    return {
        method: [float(curve.accuracy[-1]) for curve in curves[:seeds]]
        for method, curves in curves_of(problems).items()
        if len(curves) >= seeds
    }


def shown(estimate: Estimate, sign: str = "") -> str:
    """Write a mean with its interval."""
    numbers = (estimate.value, estimate.low, estimate.high)
    value, low, high = (format(number, f"{sign}.3f") for number in numbers)
    return f"{value} [{low}, {high}]"


def cell(scores: Sequence[float], everything: bool) -> str:
    """Write the middle of a method's seeds; or their mean with its interval, and the worst."""
    if everything:
        return f"{shown(mean_over_seeds(scores, (0, 1)))}; {min(scores):.3f}"
    return f"{interquartile_mean(np.array(scores)) if len(scores) > 3 else np.mean(scores):.3f}"


def difference_cell(differences: Sequence[float], everything: bool) -> str:
    """Write a mean difference, bold if it is shown; or its interval, and how many are above 0."""
    mean = mean_over_seeds(differences)
    if everything:
        above = sum(difference > 0 for difference in differences)
        return f"{shown(mean, '+')}; {above} of {len(differences)}".replace("-", "−")
    mark = "**" if mean.low > 0 or mean.high < 0 else ""
    return f"{mark}{mean.value:+.3f}{mark}".replace("-", "−")


def print_chosen() -> None:
    """Print what each method chose, and the scores of some of its trials."""
    names = {
        "normalized gradients": "step.normalize_gradients",
        "updates a step": "learner.mini_batches",
        "rate": "learner.learning_rate",
        "average": "learner.average",
        "warm-up, updates": "learner.warmup_updates",
        "bound": "learner.max_grad_norm",
    }
    unless_chosen = {"learner.warmup_updates": 10, "learner.max_grad_norm": 1.0}
    short = METHODS["choosing"]["tokens"]
    head = ["method", *names, "score as they are", "normalized", "best"]
    longer_tokens = METHODS["candidates"]["bound"]["tokens"]
    head += [f"{longer_tokens:,} tokens: unbounded", "bounded", "bounded, 16 updates"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for method, found in json.loads(CHOSEN.read_text(encoding="utf-8")).items():
        values = {name: "its own" for name in names.values()} | unless_chosen | found["chosen"]
        own = [str(values[name]) for name in names.values()]
        scores = [trial["score"] for trial in found["trials"] if trial["tokens"] == short]
        longer = [trial["score"] for trial in found["trials"] if trial["tokens"] != short]
        shown_scores = [f"{score:.3f}" for score in (*scores[:2], max(scores), *longer)]
        print(f"| {' | '.join([method, *own, *shown_scores])} |")


def main() -> None:
    """Print the table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=MAIN_SETS, help="problem sets, one a column")
    parser.add_argument("--seeds", type=int, default=METHODS["seeds"], help="runs of each method")
    parser.add_argument("--baseline", default="GRPO n=4", choices=METHODS["methods"])
    parser.add_argument("--all", action="store_true", help="print intervals and worst seeds")
    parser.add_argument("--chosen", action="store_true", help="print how each method learns")
    given = parser.parse_args()
    if missing := [p for p in given.sets if not (STUDY / slug(p) / "curves.jsonl").exists()]:
        parser.error(f"nothing is recorded of {', '.join(missing)}")
    if given.chosen:
        print_chosen()
        return
    seeds, baseline = given.seeds, given.baseline
    ends = {problems: at_the_end(problems, seeds) for problems in given.sets}
    methods = sorted(
        {method for of_set in ends.values() for method in of_set},
        key=lambda m: -float(np.mean([np.mean(e[m]) if m in e else 0.0 for e in ends.values()])),
    )
    head = ["method", *given.sets, f"difference from {baseline}"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    results = {}
    for method in methods:
        row, differences = [method], []
        for of_set in ends.values():
            scores = of_set.get(method, [])
            row.append(cell(scores, given.all) if scores else "")
            others = of_set.get(baseline, [])
            differences.append([s - b for s, b in zip(scores, others, strict=False)])
        if all(differences):
            of_seeds = np.mean(differences, axis=0)
            results[method] = vars(mean_over_seeds(of_seeds))
            row.append(difference_cell(of_seeds, given.all) if method != baseline else "")
        print(f"| {' | '.join(row)} |")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
