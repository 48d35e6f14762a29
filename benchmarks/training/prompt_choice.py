"""Which prompt sampler is worth its tokens: held-out avg@8 after equal tokens, over seeds.

Trains the built-in model on running sums until `--tokens` response tokens are drawn, once for each
prompt sampler, response sampling, problem set and seed, and evaluates it on 256 held-out problems.
Each prompt sampler stands with GRPO (4 draws a prompt, 64 prompts a step) and with Reinforce-Ada
(`Balanced(2, 2)`, 16 prompts a step, so that a step takes about as many draws as GRPO's). Intervals
are 95 %, by Student's t over seeds; differences are to uniform choice with GRPO of the same seed.
A run takes one to two minutes on one core. `rollwise compare` trains them, in the folder
`--output`; runs that are there already are not repeated.

    python benchmarks/training/prompt_choice.py [--quick] [--tokens N] [--seeds N] [--workers N]
"""

import itertools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rollwise.commands.compare import compare, file_name
from rollwise.config.base import merge
from rollwise.records import RunFolder

sys.path.append(str(Path(__file__).parents[1]))

from measuring import Figure, arguments, over_seeds, print_line, print_table, shown

PROBLEM_SETS = {"2 to 10 terms": {}, "7 to 10 terms": {"min_terms": 7}}
GRPO = {"method": "grpo", "step": {"normalize_gradients": False}}
ADA = {"method": "reinforce_ada", "prompts": {"batch_size": 16}}
LEARNER = {"average": "tokens", "mini_batches": 1, "learning_rate": 2e-4, "old_logprobs": "learner"}
RESPONSE_SAMPLINGS = {"GRPO": GRPO, "Balanced": ADA}
PROMPT_SAMPLERS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "curriculum": {"prompts": {"type": "curriculum"}},
    "prioritized": {"prompts": {"type": "prioritized"}},
    "CDAS, paper": {"prompts": {"type": "cdas"}},
    "CDAS, calibrated": {"prompts": {"type": "cdas", "form": "calibrated"}},
    "posterior": {"prompts": {"type": "posterior"}},
    "refill": {"group": {"zero_variance": "refill"}},
}
SIGNS = {"avg@8": "", "difference": "+", "zero_variance": ""}
Record = dict[str, Any]


def train_methods(
    methods: Mapping[str, Record],
    problems: str,
    tokens: int,
    seeds: int,
    folder: Path,
    workers: int | None,
) -> dict[tuple[str, int], Record]:
    """Train what is missing of each method, by `rollwise compare`; return the figures of each run.

    Args:
        methods: Settings of each, by name.
        problems: One of `PROBLEM_SETS`.
        tokens: Of each run.
        seeds: How many runs of each.
        folder: Of the comparison.
        workers: Runs at a time; None leaves it to `compare`.
    """
    settings = {
        "base": {"data": PROBLEM_SETS[problems], "learner": LEARNER},
        "methods": methods,
        "tokens": tokens,
        "seeds": seeds,
        "evaluations": 1,
        "workers": workers,
    }
    compare([settings], folder, False, Console(stderr=True))
    return {
        (name, seed): figures_of(folder / "runs" / file_name(name) / f"seed-{seed}")
        for name in methods
        for seed in range(seeds)
    }


def figures_of(run: Path) -> Record:
    """Return the figures of a run."""
    lines = RunFolder(run).read_metrics()
    steps = [line for line in lines if line["step"] > 0]
    prompts_of = [step["prompts"] for step in steps]
    after = [line["heldout"]["avg@8"]["value"] for line in lines if "heldout" in line][-1]
    shares = ("zero_variance_first", "zero_variance_after")
    return {
        "after": after,
        "steps": len(steps),
        "prompts": sum(prompts_of),
        "draws": sum(step["draws"] for step in steps),
        **{n: float(np.average([s[n] for s in steps], weights=prompts_of)) for n in shares},
    }


def main() -> None:
    """Train what is missing, compare, print."""
    options = {"tokens": 500_000, "seeds": 5, "output": Path("runs/prompt_choice")}
    parser = arguments(__doc__, "30,000 tokens, one seed, one set", **options)
    parser.add_argument("--workers", type=int)
    given = parser.parse_args()
    tokens, seeds, sets = given.tokens, range(given.seeds), list(PROBLEM_SETS)
    if given.quick:
        tokens, seeds, sets = 30_000, range(1), sets[:1]
    arms = {
        f"{responses}, {prompts}": (responses, prompts)
        for responses, prompts in itertools.product(RESPONSE_SAMPLINGS, PROMPT_SAMPLERS)
    }
    methods = {
        name: merge(RESPONSE_SAMPLINGS[responses], PROMPT_SAMPLERS[prompts])
        for name, (responses, prompts) in arms.items()
    }

    figures: dict[str, Figure] = {}
    columns = ("responses, prompts", "avg@8", "difference", "zero variance", "seen")
    for problems in sets:
        folder = given.output / file_name(f"{problems}, {tokens} tokens")
        found = train_methods(methods, problems, tokens, len(seeds), folder, given.workers)
        rows = []
        for name, arm in arms.items():
            runs = [found[name, seed] for seed in seeds]
            base = [found["GRPO, uniform", seed] for seed in seeds]
            row = {
                "avg@8": over_seeds(run["after"] for run in runs),
                "difference": over_seeds(
                    run["after"] - other["after"] for run, other in zip(runs, base, strict=True)
                ),
                "zero_variance": over_seeds(run["zero_variance_first"] for run in runs),
                "prompts_seen": over_seeds(run["prompts"] for run in runs),
            }
            figures |= {f"{problems}/{'/'.join(arm)}/{name}": value for name, value in row.items()}
            cells = (shown(row[n], f"{sign}.3f") for n, sign in SIGNS.items())
            rows.append((name, *cells, f"{row['prompts_seen']['value']:,.0f}"))
        print_table(f"{problems}, {tokens:,} tokens, {len(seeds)} seeds", columns, rows)
    print_line(figures)


if __name__ == "__main__":
    main()
