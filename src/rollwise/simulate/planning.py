"""Plans: a method's own steps on prompts of known pass rates, at known prices."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rollwise.config import PlanConfig, TrainConfig
from rollwise.config.base import setting
from rollwise.config.step import step_recipe
from rollwise.errors import ConfigError
from rollwise.sampling.draws import Key
from rollwise.sampling.pool import POSITIVE_THRESHOLD
from rollwise.simulate.engine import LengthModel, Lengths, SimulatedEngine
from rollwise.simulate.pass_rates import RatedPrompt, resample_pass_rates, spread_pass_rates
from rollwise.simulate.recorded import Recorded, RecordedLengths, rated, read_recorded
from rollwise.simulate.steps import Figures, OfStep, figures_of, summarize, take_steps

SIGMA = 0.7
"""The standard deviation of the logarithm of lengths, if it is not given."""


@dataclass(frozen=True)
class Prices:
    """How long responses are, and how fast they are drawn (see `SimulatedEngine`)."""

    lengths: LengthModel
    slots: int
    seconds_per_token: float


def read_prompts(config: PlanConfig) -> tuple[list[RatedPrompt], RecordedLengths | None]:
    """Return the prompts of a plan, and the lengths of their responses if recorded.

    A `RollwiseError` says that they cannot be read, or that lengths are neither recorded nor given.
    """
    given, recorded = config.pass_rates, None
    if config.rewards is None:
        assert given.alpha is not None and given.beta is not None
        return spread_pass_rates(given.alpha, given.beta, given.prompts), None
    threshold = _threshold(config)
    responses = read_recorded(config.rewards)
    if len(responses[0].recorded.tokens):
        known: dict[Key, Recorded] = {prompt.key: prompt.recorded for prompt in responses}
        longest = config.prices.longest or max(int(r.tokens.max()) for r in known.values())
        recorded = RecordedLengths(known, longest, threshold)
    elif config.prices.median is None:
        raise ConfigError(
            f"{config.rewards} says nothing of lengths: give `prices.median`, the median length of "
            "responses in tokens"
        )
    measured = [rated(prompt, threshold) for prompt in responses]
    return resample_pass_rates(measured, np.random.default_rng(config.seed)), recorded


def _threshold(config: PlanConfig) -> float:
    return float(setting(config.base, "grading", "positive_threshold", POSITIVE_THRESHOLD))


def prices_of(
    config: PlanConfig, name: str, method: TrainConfig, recorded: RecordedLengths | None
) -> Prices:
    """Resolve a method's prices: what is given, its own settings, defaults.

    Lengths are the recorded ones, unless their median is given: a `ConfigError` if the method would
    truncate responses below it.
    """
    given = config.prices
    slots = given.slots or method.engine.batch_size
    if given.median is None:
        assert recorded is not None  # as the settings and `read_prompts` have checked
        return Prices(recorded, slots, given.seconds_per_token)
    longest = given.longest or method.engine.max_new_tokens
    if given.longest is None and given.median > longest:
        raise ConfigError(
            f"`prices.median` is {given.median:g}, but method `{name}` cuts responses at {longest} "
            "(`engine.max_new_tokens`, whose default depends on `model.path`); set one of them, or "
            "`prices.longest`"
        )
    sigma = SIGMA if given.sigma is None else given.sigma
    lengths = Lengths(given.median, sigma, longest, given.incorrect_factor or 1.0)
    return Prices(lengths, slots, given.seconds_per_token)


def simulate_steps(
    config: TrainConfig,
    prompts: Sequence[RatedPrompt],
    prices: Prices,
    steps: int,
    on_step: Callable[[], object] = lambda: None,
) -> list[OfStep]:
    """Take a method's own steps on prompts of fixed pass rates; a `ConfigError` if they clash."""
    pass_rates: dict[Key, float] = {prompt.key: prompt.pass_rate for prompt in prompts}
    engine = SimulatedEngine(pass_rates, prices.lengths, prices.slots, prices.seconds_per_token)
    # Rewards are 0 and 1 here, whatever they are in the run.
    recipe = dataclasses.replace(step_recipe(config), positive_threshold=POSITIVE_THRESHOLD)
    found = []
    for step in take_steps(config, recipe, prompts, engine, steps):
        found.append(figures_of(step, pass_rates))
        on_step()
    return found


def plan_method(
    config: PlanConfig,
    name: str,
    prompts: Sequence[RatedPrompt],
    prices: Prices,
    on_step: Callable[[], object],
) -> Figures:
    """Average the figures of a method's steps after the warm-up; a ConfigError names the method."""
    method, steps = config.method(name), config.warmup + config.steps
    try:
        if config.rewards and method.grading.positive_threshold != _threshold(config):
            raise ConfigError(
                "`grading.positive_threshold` belongs in `base`: it rates all prompts"
            )
        found = simulate_steps(method, prompts, prices, steps, on_step)
    except ConfigError as error:
        raise ConfigError(f"method `{name}`: {error}") from None
    return summarize(found[config.warmup :])
