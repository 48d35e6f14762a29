"""A few states of solving, and how prompts move between them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.belief import Belief, beta_of
from rollwise.beliefs.state import Places, State, array_from_state, from_state
from rollwise.sampling.checks import at_least

Floats = NDArray[np.float64]

PRIOR_STAYS = 8.0
"""Transitions from each state to itself that are believed before any is seen."""

PRIOR_MOVES = 1.0
"""Transitions from each state to all others together, likewise."""

MOST_STRENGTH = 1_000.0
"""Of a belief, in pseudo-counts."""


@dataclass(eq=False)
class HiddenStates(Belief):
    """Each prompt is in one of a few states, from never to always solved, and may move at a visit.

    Follows Dynamics-Predictive Sampling (arXiv 2603.10887): a hidden Markov model with the forward
    filter b ∝ (b·T)·P(k | n, state), whose transition matrix T is learned online from the expected
    transitions, older ones counting less. Ours differs in two ways, so that single draws say
    something too: an observation is k ~ Binomial(n, θ) with θ the middle of the state's share of
    [0, 1], and T and the first state are shared by all prompts.

    Use it where prompts jump (solved from one visit to the next) more than they creep. It needs 4
    bytes a state and prompt; the cost of a step depends on its prompts alone.

    Attributes:
        pass_rates: θ of each state, shape (S,).

    Raises:
        ValueError: A setting out of its range.
    """

    states: int = field(default=5, kw_only=True, metadata={"help": "How many states; DPS has 3."})
    memory: float = field(
        default=0.99,
        kw_only=True,
        metadata={"help": "What a step keeps of the transitions counted before; 1 never forgets."},
    )

    def __post_init__(self) -> None:
        at_least("states", self.states, 2)
        if not 0 <= self.memory <= 1:
            raise ValueError(f"memory must lie between 0 and 1, got {self.memory}")
        self.pass_rates = (np.arange(self.states) + 0.5) / self.states
        moves = PRIOR_MOVES / (self.states - 1)
        self._prior = np.full((self.states, self.states), moves)
        np.fill_diagonal(self._prior, PRIOR_STAYS)
        self._transitions = np.zeros((self.states, self.states))
        self._first = np.zeros(self.states)
        self._weights = np.full((self.total, self.states), 0, dtype=np.float32)

    @property
    def _places(self) -> range:
        return range(self.states)

    @property
    def transition(self) -> Floats:
        """T: the chances of the next state, a row for each state, shape (S, S)."""
        counts = self._prior + self._transitions
        matrix: Floats = counts / counts.sum(axis=1, keepdims=True)
        return matrix

    @property
    def first(self) -> Floats:
        """The chances of each state at a first visit, shape (S,)."""
        counts = self._first + 1.0
        chances: Floats = counts / counts.sum()
        return chances

    def believe(self, places: Places | slice) -> tuple[Floats, Floats]:
        """Return the expected pass rates and their strength in pseudo-counts, shape (P,) each."""
        chances_PS = self._predict(places)
        mean = chances_PS @ self.pass_rates
        within = 1.0 / (12.0 * self.states**2)  # of a uniform distribution over a state's share
        variance = chances_PS @ self.pass_rates**2 - mean**2 + within
        strength = mean * (1.0 - mean) / variance - 1.0
        return mean, np.clip(strength, 1.0 / MOST_STRENGTH, MOST_STRENGTH)

    def priors(self, places: Places | slice) -> Floats:
        """Return α and β of the Beta distribution of this mean and strength, shape (P, 2)."""
        return beta_of(*self.believe(places))

    def learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        """Take in a step: k correct of n responses to some prompts, each once, shape (P,) each."""
        correct_P, drawn_P = np.asarray(correct, float), np.asarray(drawn, float)
        likelihood_PS = self._likelihood(correct_P, drawn_P)
        before_PS = self._weights[places].astype(float)
        new_P = ~before_PS.any(axis=1)
        joint_PS = self._predict(places) * likelihood_PS
        evidence_P = joint_PS.sum(axis=1, keepdims=True)
        after_PS = joint_PS / evidence_P
        self._transitions *= self.memory
        self._first *= self.memory
        # ξ_ij = b_i·T_ij·L_j / evidence, summed over the prompts seen before.
        self._transitions += self.transition * (before_PS.T @ (likelihood_PS / evidence_P))
        self._first += after_PS[new_P].sum(axis=0)
        self._weights[places] = after_PS

    def _predict(self, places: Places | slice) -> Floats:
        """Return the chances of each state at the next visit, shape (P, S)."""
        weights_PS = self._weights[places].astype(float)
        new_P = ~weights_PS.any(axis=1)
        predicted: Floats = weights_PS @ self.transition
        predicted[new_P] = self.first
        return predicted

    def _likelihood(self, correct: Floats, drawn: Floats) -> Floats:
        """Return P(k | n, state) up to a factor for each prompt, at most 1, shape (P, S)."""
        yes, no = np.log(self.pass_rates), np.log1p(-self.pass_rates)
        logs_PS = correct[:, None] * yes + (drawn - correct)[:, None] * no
        chances: Floats = np.exp(logs_PS - logs_PS.max(axis=1, keepdims=True))
        return chances

    def state_dict(self) -> State:
        """Return all that is known, as copies; the weights of each state in an array of its own."""
        weights = {f"weights_{state}": self._weights[:, state].copy() for state in self._places}
        return {
            **weights,
            "transitions": self._transitions.ravel().copy(),
            "first": self._first.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """Resume from a state over the same number of prompts, with as many states.

        Raises:
            ValueError: Something is lacking, or is of another number of prompts or states.
        """
        first = np.array(from_state(state, "first"), dtype=np.float64)
        if first.shape != (self.states,):
            raise ValueError(
                f"the state has {first.size} hidden states, this belief has {self.states}"
            )
        transitions = array_from_state(state, "transitions", self.states**2, np.float64)
        weights = [
            array_from_state(state, f"weights_{place}", self.total, np.float32)
            for place in self._places
        ]
        self._first = first
        self._transitions = transitions.reshape(self.states, self.states)
        self._weights = np.stack(weights, axis=1)

    def metrics(self) -> dict[str, float]:
        """Return the chance that a prompt stays in its state, averaged over states."""
        return {"belief_stays": float(np.diag(self.transition).mean())}
