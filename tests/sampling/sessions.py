"""Sessions played to their end, and where sampling ends in theory."""

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable
from random import Random

from rollwise.sampling import Draw, RolloutSession


class Engine:
    """A fake: what becomes of a draw hangs on its seed alone, not on when it is asked for.

    A third of the prompts is hard, a third easy. With `faulty`, about a draw in five fails once or
    twice, and one in twenty fails always.
    """

    def __init__(self, faulty: bool = False) -> None:
        self.faulty, self.tries = faulty, Counter()

    def reward(self, draw: Draw) -> float:
        """0 to 1, above 0.7 with pass rates of about 0.1, 0.4 and 0.9 by the prompt's key."""
        lucky = Random(draw.seed).random() < (0.1, 0.4, 0.9)[draw.key % 3]
        return (1.0 if lucky else 0.0) if draw.seed % 2 else (0.8 if lucky else 0.1)

    def answer(self, session: RolloutSession, draw: Draw) -> list[Draw]:
        """Report the draw to the session, as a success or a failure; returns the surplus."""
        self.tries[draw] += 1
        luck = Random(-draw.seed).random()
        failures = 99 if luck < 0.05 else 1 + draw.seed % 2 if luck < 0.25 else 0
        if self.faulty and self.tries[draw] <= failures:
            return session.record_failure(draw)
        return session.record(draw, self.reward(draw), response=draw.index)


def one_at_a_time(session: RolloutSession, faulty: bool = False) -> RolloutSession:
    """Draw one response, wait for it, and draw the next."""
    engine = Engine(faulty)
    while draws := session.next_draws(free_slots=1):
        assert engine.answer(session, draws[0]) == []
    assert session.done
    return session


def in_any_order(
    session: RolloutSession, random: Random, slots: int, engine: Engine, late: Iterable[int] = ()
) -> RolloutSession:
    """Answer draws in any order; cancel what is to be, pickle the session, add the `late` prompts.

    Whatever comes first, what is in flight is what was handed out and not cancelled.
    """
    in_flight, waiting = list[Draw](), [*late]
    while not session.done or waiting:
        if waiting and (session.done or random.random() < 0.1):
            session.add([waiting.pop(0)])
        if len(in_flight) < slots and (not in_flight or random.random() < 0.7):
            free = slots - len(in_flight)
            asked = random.choice([free, random.randint(1, free), None])
            handed_out = session.next_draws(asked)
            assert asked is None or len(handed_out) <= asked
            in_flight += handed_out
            assert len(set(in_flight)) == len(in_flight)
        if random.random() < 0.02:
            session = pickle.loads(pickle.dumps(session))
        assert set(session.in_flight) == set(in_flight)
        if in_flight:
            cancelled = engine.answer(session, in_flight.pop(random.randrange(len(in_flight))))
            assert set(cancelled) <= set(in_flight)
            in_flight = [draw for draw in in_flight if draw not in cancelled]
    assert not in_flight
    assert max(engine.tries.values()) <= session.max_attempts
    return session


def contents(session: RolloutSession) -> list[tuple]:
    """All that a session has found out."""
    pools = session.pools.values()
    return [(p.key, p.rewards.tolist(), p.responses, p.positives, p.exit_reason) for p in pools]


def law(ends, p: float) -> dict[tuple[int, int], float]:
    """Probability of each (n₊, n₋) that sampling ends at; `ends` says whether it does at one."""
    ended, going = {}, {(0, 0): 1.0}
    while going:
        reached = defaultdict(float)
        for (positives, negatives), weight in going.items():
            reached[positives + 1, negatives] += weight * p
            reached[positives, negatives + 1] += weight * (1 - p)
        going = {}
        for state, weight in reached.items():
            (ended if ends(state) else going)[state] = weight
    return ended
