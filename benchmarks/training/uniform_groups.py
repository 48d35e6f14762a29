"""How many groups carry no signal: GRPO's four draws against Reinforce-Ada's balanced groups.

Draws for running sums with the built-in model (or another by --model, say a checkpoint's), once by
`Balanced(2, 2)` in rounds of 8, at most 4. GRPO's groups are the first four draws of the same
prompts, so both are compared on the same responses. Intervals are 95 %, by bootstrap over prompts.

    python benchmarks/training/uniform_groups.py [--quick] [--model PATH] [--seed N]
"""

import sys
from pathlib import Path

import numpy as np

import rollwise as rw
from rollwise.config import BUILT_IN, ModelSettings
from rollwise.engines.transformers import TransformersEngine
from rollwise.grading import ExactGrader
from rollwise.models.encoding import encode_prompts
from rollwise.models.loading import load_model
from rollwise.step.session import grade_with, run_session
from rollwise.tasks import make_running_sums

sys.path.append(str(Path(__file__).parents[1]))

from measuring import arguments, bootstrapped, report

GROUP = 4


def main() -> None:
    """Draw, compare, print."""
    quick = "256 prompts instead of 2,048"
    given = arguments(__doc__, quick, model=BUILT_IN, seed=0).parse_args()

    model, tokenizer = load_model(ModelSettings(path=given.model, device="cpu"))
    problems = make_running_sums(256 if given.quick else 2048, seed=given.seed)
    prompts = encode_prompts(problems, tokenizer, max_prompt_tokens=64).token_ids
    session = rw.RolloutSession(
        prompts, rw.Balanced(GROUP // 2, GROUP // 2), rw.Rounds(8, 4), seed=given.seed
    )
    engine = TransformersEngine(model, tokenizer, max_new_tokens=48, batch_size=512)
    answers = {problem.key: problem.answer for problem in problems}
    run_session(session, engine, prompts, grade_with(ExactGrader(), answers))

    pools = list(session.pools.values())
    first = np.array([rw.has_zero_variance(pool.rewards[:GROUP]) for pool in pools], dtype=float)
    after = np.array([rw.select_group(pool, GROUP).zero_variance for pool in pools], dtype=float)
    drawn = np.array([len(pool) for pool in pools], dtype=float)
    figures = {
        "zero_variance_first": bootstrapped(np.mean, first, seed=given.seed),
        "zero_variance_after": bootstrapped(np.mean, after, seed=given.seed),
        "uniform_ratio": bootstrapped(_ratio, after, first, seed=given.seed),
        "draws_per_prompt": bootstrapped(np.mean, drawn, seed=given.seed),
    }
    report(f"Uniform groups of {GROUP}, {len(pools)} prompts, {given.model}", figures)


def _ratio(after: np.ndarray, first: np.ndarray, axis: int = -1) -> np.ndarray:
    ratio: np.ndarray = after.mean(axis=axis) / first.mean(axis=axis)
    return ratio


if __name__ == "__main__":
    main()
