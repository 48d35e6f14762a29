"""A session under any sequence of calls: Hypothesis looks for one that breaks a promise."""

import pickle
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rollwise import Balanced, FixedCount, PositiveFocused, RolloutSession, Rounds, Streamed

RULES = [Balanced(1, 1), Balanced(2, 2), PositiveFocused(1), FixedCount(3)]
SCHEDULES = [Rounds(2, 3), Rounds(4, 1), Streamed(6), Streamed(5, speculation=1)]
PLACES = st.integers(0, 10**6)


class Sessions(RuleBasedStateMachine):
    """The calls of a trainer, in any order; some prompts come later, some draws fail."""

    @initialize(
        exit_rule=st.sampled_from(RULES),
        schedule=st.sampled_from(SCHEDULES),
        count=st.integers(1, 4),
        below=st.sampled_from([0.0, 0.1]),
    )
    def begin(self, exit_rule, schedule, count, below):
        self.session = RolloutSession(range(count), exit_rule, schedule, give_up_below=below)
        self.keys, self.most = count, schedule.max_samples
        self.flying, self.rewards, self.tries = [], {}, Counter()

    @rule(slots=st.none() | st.integers(1, 9))
    def ask(self, slots):
        draws = self.session.next_draws(slots)
        assert slots is None or len(draws) <= slots
        assert not set(draws) & {*self.flying, *self.rewards}
        self.flying += draws
        self.tries.update(draws)

    @precondition(lambda self: self.flying)
    @rule(place=PLACES, reward=st.sampled_from([0.0, 1.0]))
    def answer(self, place, reward):
        draw = self.flying.pop(place % len(self.flying))
        self.rewards[draw] = reward
        self._without(self.session.record(draw, reward, response=draw))

    @precondition(lambda self: self.flying)
    @rule(place=PLACES)
    def fail(self, place):
        draw = self.flying.pop(place % len(self.flying))
        self._without(self.session.record_failure(draw))

    @precondition(lambda self: self.keys < 8)
    @rule()
    def add_a_prompt(self):
        self.session.add([self.keys])
        self.keys += 1

    @rule()
    def be_pickled(self):
        self.session = pickle.loads(pickle.dumps(self.session))

    def _without(self, cancelled):
        assert set(cancelled) <= set(self.flying)
        self.flying = [draw for draw in self.flying if draw not in cancelled]

    @invariant()
    def what_is_in_flight_is_what_was_handed_out(self):
        assert sorted(map(repr, self.session.in_flight)) == sorted(map(repr, self.flying))

    @invariant()
    def draws_are_tried_as_often_as_is_allowed(self):
        assert max(self.tries.values(), default=0) <= self.session.max_attempts
        of_prompts = Counter(draw.key for draw in self.tries)
        assert max(of_prompts.values(), default=0) <= self.most

    @invariant()
    def pools_hold_recorded_responses_in_draw_order(self):
        for key, pool in self.session.pools.items():
            indices = [draw.index for draw in pool.responses]
            assert indices == sorted(set(indices))
            assert all(draw.key == key for draw in pool.responses)
            assert pool.rewards.tolist() == [self.rewards[draw] for draw in pool.responses]

    def teardown(self):
        """Whatever came before, the rest can be drawn, and every prompt ends."""
        if not hasattr(self, "session"):
            return
        for _ in range(1000):
            if self.session.done:
                break
            self.ask(None)
            if not self.flying:
                self.ask(1)
            while self.flying:
                self.answer(0, 0.0)
        assert self.session.done
        tried = {draw.key for draw in self.tries}
        assert self.session.pools.keys() == tried == set(range(self.keys))
        self.pools_hold_recorded_responses_in_draw_order()


Sessions.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
test_any_sequence_of_calls = Sessions.TestCase
