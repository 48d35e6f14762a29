"""Prompts that are under way when a step ends, and go on in the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rollwise.sampling import RolloutSession
from rollwise.sampling.draws import Draw, Key
from rollwise.sampling.prompt import UnderWay


class BegunAgain(NamedTuple):
    """A prompt whose draws begin again.

    Attributes:
        key: The prompt.
        step: The step that makes the seeds of its draws.
        prior: What was believed of it before it was first drawn, as in `Pool`.
    """

    key: Key
    step: int
    prior: tuple[float, float] | None


@dataclass(frozen=True)
class Carried:
    """What a step leaves to the next.

    Attributes:
        at_a_time: The most prompts under way at a time.
        under_way: Prompts whose draws are in flight.
        again: Prompts whose draws begin again with the seeds that they had: the engine has
            forgotten them, because the run was evaluated, saved or resumed.
    """

    at_a_time: int
    under_way: UnderWay = field(default_factory=UnderWay)
    again: Sequence[BegunAgain] = ()

    @property
    def in_flight(self) -> list[Draw]:
        """The draws that the engine is drawing."""
        return self.under_way.in_flight

    def begun_again(self) -> "Carried":
        """Return the same prompts, to be drawn from their first draws on.

        Their results so far count for nothing: no pool of theirs was trained on or told of.
        """
        again = [
            BegunAgain(prompt.pool.key, prompt.seed_step, prompt.pool.prior)
            for prompt in self.under_way.prompts
        ]
        return Carried(self.at_a_time, again=[*again, *self.again])

    def join(self, session: RolloutSession) -> None:
        """Have a session sample on."""
        session.take_over(self.under_way)
        if self.again:
            keys, steps, priors = zip(*self.again, strict=True)
            session.add(keys, priors=None if None in priors else priors, steps=steps)

    def state(self) -> dict[str, Any]:
        """Return what `from_state` needs to begin all of it again, as JSON has it."""
        return {"at_a_time": self.at_a_time, "prompts": [list(p) for p in self.begun_again().again]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Carried":
        """Return what `state` described.

        Raises:
            KeyError, TypeError, ValueError: It lacks something.
        """
        again = [
            BegunAgain(key, int(step), None if prior is None else (prior[0], prior[1]))
            for key, step, prior in state["prompts"]
        ]
        return cls(int(state["at_a_time"]), again=again)
