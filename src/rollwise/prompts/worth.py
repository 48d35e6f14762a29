"""Prompts in proportion to what one more response to them is worth."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.beliefs import Belief, LogitKalman
from rollwise.beliefs.state import Places, State
from rollwise.prompts.choice import CANDIDATES_HELP, Mask, draw_candidates
from rollwise.prompts.fixed_set import FixedSetSampler
from rollwise.prompts.prices import TokenPrices
from rollwise.sampling.checks import at_least, one_of
from rollwise.sampling.draws import Key
from rollwise.sampling.objectives import OBJECTIVES, PassRateObjective

FUNCTIONS = {
    name: kind() for name, kind in OBJECTIVES.items() if issubclass(kind, PassRateObjective)
}
"""The functions f of the pass rate that a worth can be computed for."""


@dataclass(eq=False)
class Worth(FixedSetSampler):
    """Draws prompts with probability proportional to the worth of a response, f′(p)²·p(1 − p).

    With a good baseline, that is the expected square of a response's advantage for Σ f(p), whatever
    group it is in. `linear` prefers pass rates near ½ and `log` hard prompts; `arcsine` values all
    prompts alike. p is the mean of the belief, by default `LogitKalman`.

    With `worth_of = "token"` the worth is f′(p)²·p(1 − p)/ℓ, where ℓ is the expected length of a
    response (`TokenPrices`). For a budget of tokens, the noise of the gradient is least
    if draws are shared out in proportion to f′(p)·√(p(1 − p)/ℓ), which is `power = 0.5` (optimum
    allocation in stratified sampling: Cochran 1977, section 5.5).

    A batch is drawn without replacement: each prompt gets an exponential time whose rate is its
    worth, and those with the shortest times are taken. A share `exploration` of the probability is
    spread evenly, so that every belief is renewed now and then.

    Prompts that are chosen more often also count more: they are not weighted down in return.
    """

    objective: str = field(
        default="linear",
        kw_only=True,
        metadata={"help": "f: `linear`, `log`, `sqrt` or `arcsine`."},
    )
    worth_of: str = field(
        default="response",
        kw_only=True,
        metadata={
            "help": "What is worth it: a `response`, or a `token`; then expected lengths divide."
        },
    )
    power: float = field(
        default=1.0,
        kw_only=True,
        metadata={"help": "The worth is raised to this power; 0 chooses uniformly."},
    )
    exploration: float = field(
        default=0.1,
        kw_only=True,
        metadata={"help": "The share of the probability that is spread evenly over all prompts."},
    )
    candidates: int = field(default=1 << 17, kw_only=True, metadata={"help": CANDIDATES_HELP})

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("objective", self.objective, tuple(FUNCTIONS))
        one_of("worth_of", self.worth_of, ("response", "token"))
        self._prices = TokenPrices(len(self.keys)) if self.worth_of == "token" else None
        if not 0 <= self.power < np.inf:
            raise ValueError(f"power must be finite and at least 0, got {self.power}")
        if not 0 < self.exploration <= 1:
            raise ValueError(f"exploration must lie above 0, at most 1, got {self.exploration}")
        at_least("candidates", self.candidates, self.batch_size)

    def worth(self, places: Places | slice) -> NDArray[np.float64]:
        """Return (f′(p)²·p(1 − p)/ℓ)^power, shape (P,); ℓ = 1 for responses, p = ½ if unknown."""
        mean = np.asarray(self.belief.mean(places), dtype=float)
        known = np.clip(np.where(np.isnan(mean), 0.5, mean), 1e-3, 1.0 - 1e-3)
        slope = FUNCTIONS[self.objective].slope(known)
        price = 1.0 if self._prices is None else self._prices.of(places)
        worth: NDArray[np.float64] = (slope**2 * known * (1.0 - known) / price) ** self.power
        return worth

    def tell_tokens(self, keys: Sequence[Key], tokens: ArrayLike, responses: ArrayLike) -> None:
        """Learn how long the responses to some prompts were, if the worth is that of a token."""
        if self._prices is not None:
            tokens_P, responses_P = np.asarray(tokens), np.asarray(responses)
            some = responses_P > 0
            places = self.index.places(keys)[some]
            self._prices.learn(places, tokens_P[some], responses_P[some])

    def _own_state(self) -> State:
        return {} if self._prices is None else self._prices.state_dict()

    def _load_own_state(self, state: State) -> None:
        if self._prices is not None:
            prices = TokenPrices(len(self.keys))
            prices.load_state_dict(state)
            self._prices = prices

    def _make_belief(self) -> Belief:
        return LogitKalman(len(self.keys))

    def _choose(self, count: int, exclude: Mask | None) -> Places:
        rng = self._rng()
        places = draw_candidates(rng, len(self.keys), count, self.candidates, exclude)
        if not len(places):
            return places
        worth = self.worth(places)
        rate = (1.0 - self.exploration) * worth / worth.mean() + self.exploration
        times = rng.standard_exponential(len(places)) / rate
        return places[np.argsort(times, kind="stable")[:count]]
