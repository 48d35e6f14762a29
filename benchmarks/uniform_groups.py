"""How many groups carry no signal: GRPO's four draws against Reinforce-Ada's balanced groups.

Draws for running sums with the built-in model (or another by --model, say a checkpoint's), once by
`Balanced(2, 2)` in rounds of 8, at most 4. GRPO's groups are the first four draws of the same
prompts, so both are compared on the same responses. Intervals are 95 %, by bootstrap over prompts.

    python benchmarks/uniform_groups.py [--quick] [--model PATH] [--seed N]
"""

import argparse
import json

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

import rollwise as rw
from rollwise.config import BUILT_IN, ModelSettings
from rollwise.engines.transformers import TransformersEngine
from rollwise.grading import ExactGrader
from rollwise.models.encoding import encode_prompts
from rollwise.models.loading import load_model
from rollwise.step.session import grade_with, run_session
from rollwise.tasks import make_running_sums

GROUP = 4


def main() -> None:
    """Draw, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="256 prompts instead of 2,048")
    parser.add_argument("--model", default=BUILT_IN)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    model, tokenizer = load_model(ModelSettings(path=arguments.model, device="cpu"))
    problems = make_running_sums(256 if arguments.quick else 2048, seed=arguments.seed)
    prompts = encode_prompts(problems, tokenizer, max_prompt_tokens=64).token_ids
    session = rw.RolloutSession(
        prompts, rw.Balanced(GROUP // 2, GROUP // 2), rw.Rounds(8, 4), seed=arguments.seed
    )
    engine = TransformersEngine(model, tokenizer, max_new_tokens=48, batch_size=512)
    answers = {problem.key: problem.answer for problem in problems}
    run_session(session, engine, prompts, grade_with(ExactGrader(), answers))

    pools = list(session.pools.values())
    first = np.array([rw.has_zero_variance(pool.rewards[:GROUP]) for pool in pools], dtype=float)
    after = np.array([rw.select_group(pool, GROUP).zero_variance for pool in pools], dtype=float)
    drawn = np.array([len(pool) for pool in pools], dtype=float)
    figures = {
        "zero_variance_first": _estimate(np.mean, first, seed=arguments.seed),
        "zero_variance_after": _estimate(np.mean, after, seed=arguments.seed),
        "uniform_ratio": _estimate(_ratio, after, first, seed=arguments.seed),
        "draws_per_prompt": _estimate(np.mean, drawn, seed=arguments.seed),
    }
    table = Table(title=f"Uniform groups of {GROUP}, {len(pools)} prompts, {arguments.model}")
    for column in ("", "value", "95 % interval"):
        table.add_column(column)
    for name, f in figures.items():
        table.add_row(name, f"{f['value']:.3f}", f"{f['low']:.3f} to {f['high']:.3f}")
    Console().print(table)
    print(json.dumps(figures))


def _ratio(after: np.ndarray, first: np.ndarray, axis: int = -1) -> np.ndarray:
    ratio: np.ndarray = after.mean(axis=axis) / first.mean(axis=axis)
    return ratio


def _estimate(statistic: object, *samples: np.ndarray, seed: int) -> dict[str, float]:
    interval = stats.bootstrap(
        samples, statistic, paired=True, n_resamples=2000, method="percentile", rng=seed
    ).confidence_interval
    value = float(statistic(*samples))  # type: ignore[operator]
    return {"value": value, "low": float(interval.low), "high": float(interval.high)}


if __name__ == "__main__":
    main()
