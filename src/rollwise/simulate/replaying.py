"""What methods do with rewards that were recorded before: their own steps, without a model."""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rollwise.config import CompareConfig, TrainConfig, make_config
from rollwise.config.step import step_recipe
from rollwise.errors import ConfigError
from rollwise.sampling import Draw, Score, draw_seed
from rollwise.sampling.draws import Key
from rollwise.simulate.engine import Lengths, SimulatedEngine, blank_response, uniforms
from rollwise.simulate.recorded import Recorded, RecordedPrompt, rated
from rollwise.simulate.steps import PER_TOKENS, figures_of, summarize, take_steps
from rollwise.statistics import Estimate
from rollwise.step import Response, Step

OfReplay = Mapping[str, float]
"""Figures of one replay: those of `summarize`, `draws_per_prompt`, and `ran_out`, a share of
prompts."""


class ReplayEngine(SimulatedEngine):
    """A simulated engine that replays recorded responses, each at most once per visit.

    A visit to a prompt begins with the draw of index 0. Its draws are the recorded responses in an
    order of its own, the same for all engines of one seed; more are drawn with replacement.

    Args:
        prompts: Prompt -> its responses.
        slots: See `SimulatedEngine`.
        seed: Orders the responses.
    """

    def __init__(self, prompts: Mapping[Key, Recorded], slots: int, seed: int = 0) -> None:
        super().__init__({}, Lengths(1, 0.0, 1), slots)  # `respond` looks at neither
        self.prompts, self.seed = dict(prompts), seed
        self._visits = Counter[Key]()
        self._orders: dict[Key, Sequence[int]] = {}

    def respond(self, draw: Draw) -> Response:
        """Return the next recorded response of the prompt's visit."""
        recorded = self.prompts[draw.key]
        if draw.index == 0 or draw.key not in self._orders:
            self._visits[draw.key] += 1
            rng = np.random.default_rng(draw_seed(self.seed, self._visits[draw.key], draw.key, 0))
            self._orders[draw.key] = rng.permutation(len(recorded)).tolist()
        order, index = self._orders[draw.key], draw.index
        index = order[index] if index < len(order) else int(uniforms(draw.seed)[0] * len(order))
        length = int(recorded.tokens[index]) if len(recorded.tokens) else 1
        accs = recorded.rewards if recorded.accs is None else recorded.accs
        score = Score(float(recorded.rewards[index]), float(accs[index]))
        return blank_response(json.dumps(score.told), length, truncated=False)

    async def reward(self, draw: Draw, response: Response) -> float:
        """Return the reward of a response by its text."""
        return Score.of(json.loads(response.text))


def replay(
    config: TrainConfig, prompts: Sequence[RecordedPrompt], steps: int | None = None
) -> OfReplay:
    """Take a method's own steps, drawing recorded responses in place of a model's.

    At each visit, a prompt's responses are drawn in a new order, without replacement; once all are
    drawn, the prompt ends. The mean of its rewards counts as its expected reward. The seed of
    `config` orders prompts and responses. Steps are by default as many as take every prompt once. A
    `ConfigError` says that the settings do not fit these prompts.
    """
    recorded: dict[Key, Recorded] = {prompt.key: prompt.recorded for prompt in prompts}
    counts = {key: len(responses) for key, responses in recorded.items()}
    recipe = dataclasses.replace(step_recipe(config), most_draws=counts)
    engine = ReplayEngine(recorded, config.engine.batch_size, config.seed)
    means = {key: float(responses.rewards.mean()) for key, responses in recorded.items()}
    own = [rated(prompt, recipe.positive_threshold) for prompt in prompts]
    wanted = steps or math.ceil(len(prompts) / config.prompts.batch_size)
    found, ran_out = [], 0
    for step in take_steps(config, recipe, own, engine, wanted):
        found.append(figures_of(step, means))
        ran_out += _out(step, counts, recipe.resolved_schedule.max_samples)
    drawn_for = max(sum(step["prompts"] for step in found), 1)
    return {name: mean.value for name, mean in summarize(found, PER_TOKENS).items()} | {
        "draws_per_prompt": sum(step["draws"] for step in found) / drawn_for,
        "ran_out": ran_out / drawn_for,
    }


def _out(step: Step, counts: Mapping[Key, int], most: int) -> int:
    """Count prompts that had no response left before their rule, or their budget, ended them."""
    return sum(
        len(pool) > counts[pool.key]
        or (pool.exit_reason == "exhausted" and len(pool) == counts[pool.key] < most)
        for pool in step.rollouts.pools
    )


def bootstrap_prompts(prompts: Sequence[RecordedPrompt], seed: int) -> list[RecordedPrompt]:
    """Draw as many prompts with replacement, each with all its responses; one drawn twice is two.

    A prompt and its responses are one observation, so that a bootstrap over them covers both other
    prompts and other responses to them.
    """
    chosen_P = np.random.default_rng(seed).integers(len(prompts), size=len(prompts))
    return [
        dataclasses.replace(prompts[place], key=f"{number}: {prompts[place].key}")
        for number, place in enumerate(chosen_P)
    ]


Replays = tuple[Sequence[OfReplay], Sequence[OfReplay]]
"""The replays of one method by seed: of the prompts that were recorded, in orders that differ by
seed, and of as many prompts drawn from these with replacement, the same ones for all methods."""


@dataclass(frozen=True)
class ReplayedMethod:
    """What a method does with recorded rewards.

    Attributes:
        replays: Its replays.
        means: The mean of each figure over the recorded prompts, with the 95 % interval of what
            prompts like them would show; of no width with one replay.
        differences: The same for the paired differences from the baseline; None for the baseline
            itself, or with one replay.
    """

    replays: Replays
    means: Mapping[str, Estimate]
    differences: Mapping[str, Estimate] | None

    @property
    def verdict(self) -> str:
        """`more` or `less` signal per token than the baseline, or `not shown`, if it spans 0."""
        if self.differences is None:
            return ""
        return self.differences["signal_per_1000_tokens"].verdict("more", "less")


def replay_methods(
    config: CompareConfig,
    prompts: Sequence[RecordedPrompt],
    on_replay: Callable[[], object] = lambda: None,
) -> dict[str, ReplayedMethod]:
    """Replay each method as often as it has seeds, on the prompts and on bootstrapped ones."""
    found: dict[str, Replays] = {}
    for method in config.compared:
        recorded, bootstrapped = list[OfReplay](), list[OfReplay]()
        for seed in range(config.seeds_of(method)):
            given = make_config(config.run_settings(method, seed, {}))
            try:
                recorded.append(replay(given, prompts, config.steps))
                bootstrapped.append(replay(given, bootstrap_prompts(prompts, seed), config.steps))
            except ConfigError as error:
                raise ConfigError(f"method `{method}`: {error}") from None
            on_replay()
        found[method] = recorded, bootstrapped
    return compare_replays(found, config.baseline or config.compared[0])


def compare_replays(replays: Mapping[str, Replays], baseline: str) -> dict[str, ReplayedMethod]:
    """Compare methods with a baseline, replay by replay, for the seeds that both have."""
    found = {}
    for method, own in replays.items():
        recorded, bootstrapped = (
            [
                {name: mine[name] - theirs[name] for name in mine if name in theirs}
                for mine, theirs in zip(*pair, strict=False)
            ]
            for pair in zip(own, replays[baseline], strict=True)
        )
        is_shown = method != baseline and len(recorded) > 1
        differences = _estimates((recorded, bootstrapped)) if is_shown else None
        found[method] = ReplayedMethod(own, _estimates(own), differences)
    return found


def _estimates(replays: Replays) -> dict[str, Estimate]:
    """Average each figure that all replays have, with its 95 % bootstrap interval.

    A step that trains on nothing lacks some figures. The standard error is the standard deviation
    of the B bootstrapped replays, with Student's t of B − 1 degrees of freedom because B is small.
    Each also has its own order, which makes the interval too wide rather than too narrow.
    """
    recorded, bootstrapped = replays
    every, count = [*recorded, *bootstrapped], len(bootstrapped)
    found = {}
    for name in (n for n in every[0] if all(n in figures for figures in every)):
        mean, half = float(np.mean([figures[name] for figures in recorded])), 0.0
        if count > 1:
            error = np.std([figures[name] for figures in bootstrapped], ddof=1)
            half = float(stats.t.ppf(0.975, count - 1) * error)
        found[name] = Estimate(mean, mean - half, mean + half)
    return found
