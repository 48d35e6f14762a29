"""What a method would cost and teach: its own steps, drawn by the simulated engine."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rollwise.config import TrainConfig
from rollwise.config.step import make_sampler, step_recipe
from rollwise.engines.simulated import LengthModel, SimulatedEngine, simulate
from rollwise.errors import ConfigError
from rollwise.sampling import RolloutSession
from rollwise.sampling.draws import Key
from rollwise.sampling.pool import POSITIVE_THRESHOLD
from rollwise.step import PromptSupply, RolloutCost, Step, StepRecipe, take_step
from rollwise.tasks.pass_rates import RatedPrompt

PRICES = {"signal_per_1000_tokens": ("tokens", 1000.0), "signal_per_second": ("seconds", 1.0)}
"""Signal for what it costs: name -> the cost, and the unit of it."""


@dataclass(frozen=True)
class Prices:
    """How long responses are, and how fast they are drawn (see `SimulatedEngine`)."""

    lengths: LengthModel
    slots: int
    seconds_per_token: float
    prefill: float = 0.0
    seconds_per_busy_slot: float = 0.0


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
        trained: Responses trained on.
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
        """Take the figures of a step.

        Args:
            step: The step.
            pass_rates: The expected reward, by prompt: the true pass rate where rewards are 0
                and 1.
        """
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
            trained=float(sum(len(group.members) for group in groups)),
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


@dataclass(frozen=True)
class Mean:
    """A mean over steps, and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: ArrayLike) -> "Mean":
        """Average a figure over S ≥ 2 steps, shape (S,)."""
        return cls.of_ratio(values, np.ones(len(np.asarray(values))))

    @classmethod
    def of_ratio(cls, numerators: ArrayLike, denominators: ArrayLike) -> "Mean":
        """Divide the mean of one figure by that of another, by the delta method.

        Args:
            numerators: Of S ≥ 2 steps, shape (S,).
            denominators: Shape (S,), of a mean other than 0.
        """
        above_S, below_S = np.asarray(numerators, float), np.asarray(denominators, float)
        ratio = above_S.mean() / below_S.mean()
        scatter = np.std(above_S - ratio * below_S, ddof=1) / below_S.mean()
        return cls(float(ratio), float(scatter / np.sqrt(len(above_S))))


Plan = dict[str, Mean]
"""The figures of a method, each a mean over steps: those of `StepFigures`, and `PRICES`. Zero
variance is not among them where each prompt has a single response."""


def simulate_steps(
    config: TrainConfig,
    prompts: Sequence[RatedPrompt],
    prices: Prices,
    steps: int,
    on_step: Callable[[], object] = lambda: None,
) -> list[StepFigures]:
    """Take a method's own steps on prompts of known pass rates, which stay as they are.

    Args:
        config: The settings of a run by the method.
        prompts: The prompts.
        prices: What responses cost.
        steps: How many, S.
        on_step: Is called after each.

    Returns:
        The figures of each step.

    Raises:
        ConfigError: The settings do not fit these prompts.
    """
    pass_rates: dict[Key, float] = {prompt.key: prompt.pass_rate for prompt in prompts}
    engine = SimulatedEngine(
        pass_rates,
        prices.lengths,
        prices.slots,
        prices.seconds_per_token,
        prices.prefill,
        prices.seconds_per_busy_slot,
    )
    # Rewards are 0 and 1 here, whatever they are in the run.
    recipe = dataclasses.replace(step_recipe(config), positive_threshold=POSITIVE_THRESHOLD)
    found = []
    for step in take_steps(config, recipe, prompts, engine, steps):
        found.append(StepFigures.of(step, pass_rates))
        on_step()
    return found


def take_steps(
    config: TrainConfig,
    recipe: StepRecipe,
    prompts: Sequence[RatedPrompt],
    engine: SimulatedEngine,
    steps: int,
) -> Iterator[Step]:
    """Take steps with a simulated engine; nothing is learned from them but by the sampler.

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
        [prompt.level for prompt in prompts],
        [prompt.measured for prompt in prompts],
    )

    def roll_out(session: RolloutSession, supply: PromptSupply | None = None) -> RolloutCost:
        return simulate(session, engine, supply)

    carried = None
    for number in range(1, steps + 1):
        step = take_step(recipe, sampler, roll_out, number, carried)
        carried = step.carried
        yield step


def summarise(steps: Sequence[StepFigures]) -> Plan:
    """Average the figures of at least two steps; those that a step does not have are left out."""
    names = [field.name for field in dataclasses.fields(StepFigures)]
    values: dict[str, NDArray[np.float64]] = {
        name: np.array([getattr(step, name) for step in steps])
        for name in (*names, "signal_to_noise", "signal")
    }
    per_price = {
        name: Mean.of_ratio(unit * values["signal"], values[cost])
        for name, (cost, unit) in PRICES.items()
    }
    known = {name: of_steps for name, of_steps in values.items() if not np.isnan(of_steps).any()}
    return {name: Mean.of(of_steps) for name, of_steps in known.items()} | per_price


def best(plans: Mapping[str, Plan], price: str) -> tuple[str, str, bool]:
    """Find the method with most signal for a price.

    Args:
        plans: Of at least two methods.
        price: A name in `PRICES`.

    Returns:
        The best method, the next one, and whether their difference is more than the simulation's
        own error: more than `Z_95` times its standard error over steps.
    """
    first, second = sorted(plans, key=lambda name: -plans[name][price].value)[:2]
    one, other = plans[first][price], plans[second][price]
    error = float(np.hypot(one.error, other.error))
    return first, second, one.value - other.value > Z_95 * error


Z_95: float = float(stats.norm.ppf(0.975))
"""A difference counts from so many standard errors on."""


def as_json(plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Return method -> figure -> {"value", "error"}."""
    return {
        name: {figure: dataclasses.asdict(mean) for figure, mean in plan.items()}
        for name, plan in plans.items()
    }
