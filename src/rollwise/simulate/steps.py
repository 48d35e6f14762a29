"""Steps of a method with a simulated engine: what each costs, and how much it teaches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rollwise.config import TrainConfig
from rollwise.config.step import make_sampler
from rollwise.errors import ConfigError
from rollwise.sampling.draws import Key
from rollwise.simulate.engine import SimulatedEngine, simulate
from rollwise.simulate.pass_rates import RatedPrompt
from rollwise.step import Step, StepRecipe, take_step
from rollwise.tasks.columns import smoothed

PER_TOKENS = {"signal_per_1000_tokens": ("tokens", 1000.0)}
PRICES = PER_TOKENS | {"signal_per_second": ("seconds", 1.0)}
"""Signal per cost: name -> the cost, and its unit."""

OfStep = dict[str, float]
"""The figures of one step, by name; see `figures_of`."""


def figures_of(step: Step, pass_rates: Mapping[Key, float]) -> OfStep:
    """Describe what one step cost and taught; `pass_rates` are the expected rewards, by prompt.

    Returns:
        `prompts` that were drawn for; `draws` and `tokens`, of all draws; `seconds` of sampling;
        `zero_variance_first` and `zero_variance_after`, shares of the prompts whose first draws,
        and whose groups, have one reward, unless each prompt has a single response; `trained`,
        the responses of other groups. Over these, `movement`, M = Σ A·(r − p): how far the step
        moves along the gradient of the expected reward; `noise`, N = √(Σ A²): the size of the rest;
        `signal_to_noise`, M / N, 0 for a step without advantages; and `signal`, (M / N)²: it grows
        with the responses, and does not depend on the advantages' scale.
    """
    groups = [group for group in step.groups if not group.dropped]
    noise = float(np.sqrt(sum(float(np.sum(group.advantages**2)) for group in groups)))
    movement = sum(
        float(np.sum(group.advantages * (group.members.rewards - pass_rates[group.pool.key])))
        for group in groups
    )
    names = ["prompts", "draws", "tokens"]
    if any(len(group.members) > 1 for group in step.groups):
        names += ["zero_variance_first", "zero_variance_after"]
    signal_to_noise = movement / noise if noise else 0.0
    return {name: float(step.metrics[name]) for name in names} | {
        "seconds": step.metrics["seconds"]["sampling"],
        "trained": float(sum(group.trained for group in groups)),
        "movement": movement,
        "noise": noise,
        "signal_to_noise": signal_to_noise,
        "signal": signal_to_noise**2,
    }


def take_steps(
    config: TrainConfig,
    recipe: StepRecipe,
    prompts: Sequence[RatedPrompt],
    engine: SimulatedEngine,
    steps: int,
) -> Iterator[Step]:
    """Take a method's own steps, from which only the prompt sampler learns."""
    sampler = make_sampler(
        config,
        [prompt.key for prompt in prompts],
        {
            "level": [prompt.level for prompt in prompts],
            "pass_rate": [smoothed(*prompt.measured) for prompt in prompts],
        },
    )
    for number in range(1, steps + 1):
        if sampler.exhausted:
            raise ConfigError(
                f"`prompts.visits` are over after {number - 1} of {steps} steps: allow more visits "
                "or take fewer steps"
            )
        yield take_step(recipe, sampler, lambda session: simulate(session, engine), number)


@dataclass(frozen=True)
class Mean:
    """A mean over steps, and its standard error: NaN for a single step."""

    value: float
    error: float

    @classmethod
    def of(cls, values: ArrayLike, denominators: ArrayLike = 1.0) -> "Mean":
        """Average a figure over S steps, or its ratio to another (error by the delta method)."""
        above_S, below_S = np.broadcast_arrays(np.asarray(values, float), denominators)
        ratio = float(above_S.mean() / below_S.mean())
        if len(above_S) < 2:
            return cls(ratio, np.nan)
        scatter = np.std(above_S - ratio * below_S, ddof=1) / below_S.mean()
        return cls(ratio, float(scatter / np.sqrt(len(above_S))))


Figures = dict[str, Mean]
"""The figures of a method, each a mean over steps: those of `figures_of`, and signal per cost."""


def summarize(steps: Sequence[OfStep], prices: Mapping[str, tuple[str, float]] = PRICES) -> Figures:
    """Average the figures of one or more steps; those that a step does not have are left out."""
    values = {
        name: np.array([step[name] for step in steps])
        for name in steps[0]
        if all(name in step for step in steps)
    }
    return {name: Mean.of(of_steps) for name, of_steps in values.items()} | {
        name: Mean.of(unit * values["signal"], values[cost])
        for name, (cost, unit) in prices.items()
    }
