"""Steps of a method with a simulated engine: what each costs, and how much it teaches."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.config import TrainConfig
from rollwise.config.step import make_sampler
from rollwise.engines.simulated import SimulatedEngine, simulate
from rollwise.errors import ConfigError
from rollwise.sampling.draws import Key
from rollwise.simulate.pass_rates import RatedPrompt
from rollwise.step import Step, StepRecipe, take_step
from rollwise.tasks.columns import smoothed

PER_TOKENS = {"signal_per_1000_tokens": ("tokens", 1000.0)}
PRICES = PER_TOKENS | {"signal_per_second": ("seconds", 1.0)}
"""Signal for what it costs: name -> the cost, and the unit of it."""


@dataclass(frozen=True)
class StepFigures:
    """What one step cost and taught.

    Attributes:
        prompts: Prompts that were drawn for.
        draws: All draws.
        tokens: Of all draws.
        seconds: Of sampling.
        zero_variance_first: Share of prompts whose first draws have one reward; NaN where each
            prompt has a single response, whose reward is always one.
        zero_variance_after: Share of prompts whose groups have; NaN likewise.
        trained: Responses trained on, those of zero-variance groups left out.
        movement: M = Σ A·(r − p) over these: how far the step moves along the gradient of the
            expected reward.
        noise: N = √(Σ A²): the size of the rest.
    """

    prompts: float
    draws: float
    tokens: float
    seconds: float
    zero_variance_first: float
    zero_variance_after: float
    trained: float
    movement: float
    noise: float

    @classmethod
    def of(cls, step: Step, pass_rates: Mapping[Key, float]) -> "StepFigures":
        """Take the figures of a step; `pass_rates` are the expected rewards, by prompt."""
        groups = [group for group in step.groups if not group.dropped]
        squares = sum(float(np.sum(group.advantages**2)) for group in groups)
        movement = sum(
            float(np.sum(group.advantages * (group.members.rewards - pass_rates[group.pool.key])))
            for group in groups
        )
        of_groups = ("zero_variance_first", "zero_variance_after")
        own = {name: float(step.metrics[name]) for name in ("prompts", "draws", "tokens")}
        if all(len(group.members) < 2 for group in step.groups):
            own |= dict.fromkeys(of_groups, np.nan)
        else:
            own |= {name: float(step.metrics[name]) for name in of_groups}
        return cls(
            **own,
            seconds=step.metrics["seconds"]["sampling"],
            trained=float(sum(group.trained for group in groups)),
            movement=movement,
            noise=float(np.sqrt(squares)),
        )

    @property
    def signal_to_noise(self) -> float:
        """M / N; 0 for a step without advantages."""
        return self.movement / self.noise if self.noise else 0.0

    @property
    def signal(self) -> float:
        """(M / N)²: it grows with the responses, and does not depend on the advantages' scale."""
        return self.signal_to_noise**2


def take_steps(
    config: TrainConfig,
    recipe: StepRecipe,
    prompts: Sequence[RatedPrompt],
    engine: SimulatedEngine,
    steps: int,
) -> Iterator[Step]:
    """Take a method's own steps; nothing is learned from them but by the prompt sampler.

    Raises:
        ConfigError: The settings do not fit these prompts.
    """
    if config.prompts.batch_size > len(prompts):
        raise ConfigError(
            f"`prompts.batch_size` must be at most the number of prompts, {len(prompts)}; it is "
            f"{config.prompts.batch_size}"
        )
    sampler = make_sampler(
        config,
        [prompt.key for prompt in prompts],
        {
            "level": [prompt.level for prompt in prompts],
            "pass_rate": [smoothed(*prompt.measured) for prompt in prompts],
        },
    )
    for number in range(1, steps + 1):
        yield take_step(recipe, sampler, lambda session: simulate(session, engine), number)


@dataclass(frozen=True)
class Mean:
    """A mean over steps, and its standard error: NaN of a single step."""

    value: float
    error: float

    @classmethod
    def of(cls, values: ArrayLike) -> "Mean":
        """Average a figure over S steps, shape (S,)."""
        return cls.of_ratio(values, np.ones(len(np.asarray(values))))

    @classmethod
    def of_ratio(cls, numerators: ArrayLike, denominators: ArrayLike) -> "Mean":
        """Divide the mean of one figure by that of another, shape (S,), by the delta method."""
        above_S, below_S = np.asarray(numerators, float), np.asarray(denominators, float)
        ratio = float(above_S.mean() / below_S.mean())
        if len(above_S) < 2:
            return cls(ratio, np.nan)
        scatter = np.std(above_S - ratio * below_S, ddof=1) / below_S.mean()
        return cls(ratio, float(scatter / np.sqrt(len(above_S))))


Figures = dict[str, Mean]
"""The figures of a method, each a mean over steps: those of `StepFigures`, and signal for prices.
Zero variance is not among them where each prompt has a single response."""


def summarise(
    steps: Sequence[StepFigures], prices: Mapping[str, tuple[str, float]] = PRICES
) -> Figures:
    """Average the figures of one or more steps; those that a step does not have are left out."""
    names = [field.name for field in dataclasses.fields(StepFigures)]
    values: dict[str, NDArray[np.float64]] = {
        name: np.array([getattr(step, name) for step in steps])
        for name in (*names, "signal_to_noise", "signal")
    }
    per_price = {
        name: Mean.of_ratio(unit * values["signal"], values[cost])
        for name, (cost, unit) in prices.items()
    }
    known = {name: of_steps for name, of_steps in values.items() if not np.isnan(of_steps).any()}
    return {name: Mean.of(of_steps) for name, of_steps in known.items()} | per_price
