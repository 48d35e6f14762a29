"""How many slots are idle: a step of prompts, a step of tokens, and steps that carry over.

Single responses to prompts chosen uniformly. An arm takes steps of as many tokens as `RESPONSES`
responses have on average: as one batch of prompts, as `step.tokens` with as many prompts under way
as there are slots, and the same with `step.carry_over`. Idle is the share of slots without a
response, averaged over time; time is seconds of drawing for each token, relative to the batches
(virtual ones of the simulated engine). Weights do not change. Values are means over seeds with
95 % intervals by Student's t.

Parts: "simulated", with log-normal lengths (median 500 tokens; "moderate" σ 0.7, cut at 2,048;
"long" σ 1.2, cut at 16,384), and "built-in", the shipped model on the built-in task, one process,
64 slots.

    OMP_NUM_THREADS=1 python benchmarks/carry_over.py [--quick] [--parts simulated built-in]
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

import rollwise as rw
from rollwise.engines.rollout import grade_with, run_session
from rollwise.engines.simulated import CORRECT, Lengths, SimulatedEngine
from rollwise.grading import ExactGrader
from rollwise.grading.grader import finished
from rollwise.step import Carried, RolloutCost, StepRecipe, take_step
from rollwise.tasks import make_running_sums

RESPONSES = 256
"""Responses of a step, about."""
SLOTS = {"as many slots": 256, "a quarter of the slots": 64}
LENGTHS = {
    "moderate": Lengths(median=500, sigma=0.7, longest=2048),
    "long": Lengths(median=500, sigma=1.2, longest=16384),
}
PROMPTS = 8192
STEPS = 8
SINGLE: dict[str, Any] = {
    "exit_rule": rw.FixedCount(1),
    "schedule": rw.Streamed(1),
    "objective": "linear",
    "baseline": "belief",
    "strategy": "all",
    "group_size": 1,
}
Estimate = dict[str, float]


@dataclass(frozen=True)
class Arm:
    """A way of ending steps; `most_off_policy` 0 carries nothing over."""

    name: str
    by_tokens: bool = True
    most_off_policy: int = 0

    def recipe(self, tokens: int, seed: int) -> StepRecipe:
        """Make its recipe, for steps of so many tokens."""
        own: dict[str, Any] = {"tokens": tokens} if self.by_tokens else {}
        if self.most_off_policy:
            own |= {"carry_over": True, "max_steps_off_policy": self.most_off_policy}
        return StepRecipe(**SINGLE, **own, seed=seed)


BATCHES = Arm("batches of prompts", by_tokens=False)
ARMS = (
    BATCHES,
    Arm("step.tokens"),
    Arm("carried over, at most 1 step", most_off_policy=1),
    Arm("carried over, at most 4 steps", most_off_policy=4),
    Arm("carried over, at most 16 steps", most_off_policy=16),
)


@dataclass(frozen=True)
class Outcome:
    """What came of a run: the share of idle slots, time for each token, the oldest responses."""

    idle: float
    time: float
    off_policy: float


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 seeds, 4 steps")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--seeds", type=int, default=4)
    arguments = parser.parse_args()
    seeds = range(2 if arguments.quick else arguments.seeds)
    figures: dict[str, Estimate] = {}
    for part in arguments.parts:
        for setting, run in PARTS[part](4 if arguments.quick else STEPS):
            figures |= compare(setting, run, seeds)
    print(json.dumps(figures))


def compare(setting: str, run: Callable[[Arm, int], Outcome], seeds: range) -> dict[str, Estimate]:
    """Run all arms with all seeds, in turns; print a table, and return ratios of time."""
    outcomes: dict[Arm, list[Outcome]] = {arm: [] for arm in ARMS}
    for seed in seeds:
        for arm in ARMS:
            outcomes[arm].append(run(arm, seed))
    table = Table("steps", "idle slots, %", "time a token", "oldest, steps", title=setting)
    figures = {}
    for arm, found in outcomes.items():
        ratios = [
            own.time / other.time for own, other in zip(found, outcomes[BATCHES], strict=True)
        ]
        idle, ratio = over_seeds([100 * one.idle for one in found]), over_seeds(ratios)
        oldest = np.mean([one.off_policy for one in found])
        table.add_row(arm.name, shown(idle, 1), shown(ratio, 3), f"{oldest:.1f}")
        if arm is not BATCHES:
            figures[f"time_ratio, {arm.name}, {setting}"] = ratio
        figures[f"idle_percent, {arm.name}, {setting}"] = idle
    Console(width=120).print(table)
    return figures


def over_seeds(values: list[float]) -> Estimate:
    """Mean with its 95 % interval, by Student's t."""
    half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return {"value": float(np.mean(values)), "low": np.mean(values) - half} | {
        "high": np.mean(values) + half
    }


def shown(found: Estimate, digits: int) -> str:
    """Write a value with its interval."""
    value, low, high = (f"{found[end]:.{digits}f}" for end in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def take_steps(
    arm: Arm,
    sampler: rw.PromptSampler,
    roll_out: Callable[..., RolloutCost],
    tokens: int,
    steps: int,
    seed: int,
) -> float:
    """Take steps; returns the mean of their oldest responses' ages, in steps."""
    recipe, ages = arm.recipe(tokens, seed), []
    carried: Carried | None = None
    for number in range(1, steps + 1):
        step = take_step(recipe, sampler, roll_out, number, carried)
        carried = step.carried
        ages.append(step.metrics.get("steps_off_policy", 0))
    return float(np.mean(ages))


def simulated(steps: int) -> Iterator[tuple[str, Callable[[Arm, int], Outcome]]]:
    """Compare on the simulated engine."""
    for tail, lengths in LENGTHS.items():
        drawn = [lengths.length((i + 0.5) / 10_000, True)[0] for i in range(10_000)]
        tokens = round(RESPONSES * float(np.mean(drawn)))
        for words, slots in SLOTS.items():

            def run(
                arm: Arm,
                seed: int,
                lengths: Lengths = lengths,
                tokens: int = tokens,
                slots: int = slots,
            ) -> Outcome:
                engine = SimulatedEngine(dict.fromkeys(range(PROMPTS), 0.5), lengths, slots)
                batch = slots if arm.by_tokens else RESPONSES
                sampler = rw.Uniform(range(PROMPTS), batch, seed)

                def grade(completions: Any) -> Any:
                    return [finished(float(one.text == CORRECT)) for one in completions]

                def roll_out(session: rw.RolloutSession, supply: Any = None) -> RolloutCost:
                    return run_session(session, engine, {}, grade, supply)

                oldest = take_steps(arm, sampler, roll_out, tokens, steps, seed)
                idle = 1 - engine.busy / (engine.slots * engine.now)
                return Outcome(idle, engine.now / engine.tokens, oldest)

            yield f"simulated, {tail} lengths, {words}", run


def built_in(steps: int) -> Iterator[tuple[str, Callable[[Arm, int], Outcome]]]:
    """Compare on the shipped model; a slot is idle in a forward pass that has no row for it."""
    from rollwise.config import BUILT_IN, ModelSettings
    from rollwise.engines.transformers import TransformersEngine
    from rollwise.models.encoding import encode_prompts
    from rollwise.models.loading import load_model

    model, tokenizer = load_model(ModelSettings(path=BUILT_IN, device="cpu", cpu_threads=1))
    problems = make_running_sums(4096, seed=0)
    prompts = encode_prompts(problems, tokenizer, 64).token_ids
    grade = grade_with(ExactGrader(), {problem.key: problem.answer for problem in problems})
    slots = 64

    def run(arm: Arm, seed: int) -> Outcome:
        engine = TransformersEngine(model, tokenizer, 48, batch_size=slots, processes=1)
        rows, batch = [], engine._batch
        step_of = batch._step

        def counted() -> None:
            rows.append(len(batch._cache.order))
            step_of()

        batch._step = counted  # type: ignore[method-assign]
        seconds, drawn = 0.0, 0

        def roll_out(session: rw.RolloutSession, supply: Any = None) -> RolloutCost:
            nonlocal seconds, drawn
            began = time.process_time()
            cost = run_session(session, engine, prompts, grade, supply)
            seconds, drawn = seconds + time.process_time() - began, drawn + cost.tokens
            return cost

        sampler = rw.Uniform(list(prompts), slots if arm.by_tokens else RESPONSES, seed)
        oldest = take_steps(arm, sampler, roll_out, 17 * RESPONSES, steps, seed)
        return Outcome(1 - sum(rows) / (slots * len(rows)), seconds / drawn, oldest)

    yield "built-in engine, 64 slots", run


PARTS = {"simulated": simulated, "built-in": built_in}


if __name__ == "__main__":
    main()
