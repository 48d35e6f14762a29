"""The ledger of a step, the rows of its prompts, and the score of what was believed of them."""

import numpy as np
import pytest

from rollwise.engines import PlayedEpisode
from rollwise.engines.simulated import Lengths, SimulatedEngine, simulate
from rollwise.prompts import Prioritized, Uniform
from rollwise.sampling import GVM, Balanced, Pool, Rounds, Streamed
from rollwise.step import Span, StepRecipe, Usage, take_step
from rollwise.step.ledger import PLACES
from rollwise.step.metrics import brier_skill
from rollwise.step.visits import visit_rows

PASS_RATES = {key: (key + 0.5) / 24 for key in range(24)}
STREAMED = {"schedule": Streamed(16, speculation=0.5)}
RECIPES = {
    "rounds": {"schedule": Rounds(4, 4)},
    "streamed": STREAMED,
    "kept": {"schedule": Rounds(4, 1), "zero_variance": "keep"},
    "refilled": {"schedule": Rounds(4, 1), "zero_variance": "refill"},
    "all members": {"schedule": Rounds(4, 4), "strategy": "all"},
    "pilot": {"exit_rule": None, "schedule": None, "allocation": GVM(pilot=2)},
}


class Counting(SimulatedEngine):
    """Counts the tokens of every response by its draw, finished or cancelled."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.all_tokens = 0

    def wait(self):
        results = super().wait()
        self.all_tokens += sum(len(result.tokens) for result in results)
        return results

    def cancel(self, draws):
        cut = super().cancel(draws)
        self.all_tokens += cut
        return cut


class Playing(Counting):
    """Its responses are episodes, in which an environment says three tokens more."""

    def wait(self):
        return [
            PlayedEpisode(
                spans=(Span(done.tokens, done.logprobs), Span((7, 8, 9))),
                usage=Usage(len(done.tokens)),
                draw=done.draw,
                text=done.text,
                transcript=done.text,
            )
            for done in super().wait()
        ]


def steps(count=3, kind=Counting, **changed):
    recipe = StepRecipe(**{"exit_rule": Balanced(2, 2), "group_size": 4} | changed)
    sampler = Uniform(list(PASS_RATES), 12)
    engine = kind(PASS_RATES, Lengths(20, 0.8, 60), 8, 1.0)
    for number in range(1, count + 1):
        before = engine.all_tokens
        step = take_step(recipe, sampler, lambda session: simulate(session, engine), number)
        yield step, engine.all_tokens - before


@pytest.mark.parametrize("kind", RECIPES)
def test_the_ledger_adds_up_to_every_draw_and_every_token(kind):
    for step, tokens in steps(**RECIPES[kind]):
        ledger, metrics = step.metrics["ledger"], step.metrics
        assert list(ledger["draws"]) == list(ledger["tokens"]) == list(PLACES)
        assert sum(ledger["draws"].values()) == metrics["draws"] + metrics["failed_draws"]
        assert sum(ledger["tokens"].values()) == metrics["tokens"] == tokens
        trained = step.examples({key: [0] for key in PASS_RATES})
        taught = [example for example in trained if kind != "kept" or example.advantage]
        assert ledger["draws"]["trained"] == len(taught)
        assert ledger["tokens"]["trained"] == sum(len(each.response) for each in taught)
        if kind != "streamed":  # then surplus tokens, the rest, are none: nothing is cancelled
            assert ledger["draws"]["surplus"] == ledger["tokens"]["surplus"] == 0


def test_an_environments_tokens_are_in_no_ledger():
    for step, tokens in steps(kind=Playing, **RECIPES["pilot"]):
        ledger = step.metrics["ledger"]["tokens"]
        assert sum(ledger.values()) == step.metrics["tokens"] == tokens
        assert ledger["pilot"] > 0 == ledger["surplus"]


def test_the_streamed_steps_did_have_surplus_and_spare_draws():
    """Otherwise the test above would not have looked at them."""
    found = [step.metrics["ledger"] for step, _ in steps(**STREAMED)]
    assert sum(ledger["tokens"]["surplus"] for ledger in found) > 0
    assert sum(ledger["draws"]["surplus"] for ledger in found) > 0
    assert sum(ledger["draws"]["spare"] for ledger in found) > 0
    assert sum(ledger["draws"]["zero_variance"] for ledger in found) > 0


def test_cut_responses_are_counted_beside_where_they_went():
    for step, _ in steps(count=2, **RECIPES["rounds"]):
        cut = [r for g in step.groups for r in g.pool.responses if r.truncated]
        assert step.metrics["ledger"]["truncated"] == {"draws": len(cut), "tokens": 60 * len(cut)}
        assert cut


def test_each_prompt_has_a_row_with_what_was_believed_before_the_step():
    sampler = Uniform(["a", "b"], 2, decay=1.0)
    sampler.tell(["a", "b"], [3, 0], [4, 0])
    pools = [Pool("a", [1, 0, 0]), Pool("b", [])]
    pools[0].exit_reason = "satisfied"
    believed = sampler.expected_pass_rates(["a"])[0]
    first, second = visit_rows(sampler, pools, trained=[2, 0])
    assert first == {
        "key": "a",
        "correct": 1,
        "drawn": 3,
        "reward": pytest.approx(1 / 3),
        "expected": pytest.approx(believed, abs=1e-4),
        "strength": pytest.approx(sum(sampler.pass_rate_priors(["a"])[0]), abs=0.01),
        "trained": 2,
        "exit_reason": "satisfied",
    }
    assert (second["drawn"], second["reward"]) == (0, None)


def test_a_sampler_that_expects_nothing_has_rows_without_beliefs():
    (row,) = visit_rows(Prioritized(["a"], 1), [Pool("a", [1])], trained=[0])
    assert row["expected"] is row["strength"] is None


def test_the_score_by_hand():
    """Two prompts, 1 and 3 of 4 correct, expected at 0.25 and 0.5; their mean is 0.5.

    B = (1·0.75² + 3·0.25² + 3·0.5² + 1·0.5²)/8 = 1.75/8, B₀ = 0.25.
    """
    assert brier_skill([0.25, 0.5], [1, 3], [4, 4]) == pytest.approx(1 - 1.75 / 8 / 0.25)


def test_the_score_of_the_mean_is_0_and_of_certainty_that_is_right_1():
    assert brier_skill([0.5, 0.5], [1, 3], [4, 4]) == pytest.approx(0)
    assert brier_skill([0, 1], [0, 4], [4, 4]) == 1
    assert brier_skill([1, 0], [0, 4], [4, 4]) == -3


@pytest.mark.parametrize(
    ("expected", "correct"),
    [([np.nan, np.nan], [1, 2]), ([0.5, 0.5], [0, 0]), ([0.5, 0.5], [4, 4])],
)
def test_where_nothing_can_be_scored_there_is_no_score(expected, correct):
    assert np.isnan(brier_skill(expected, correct, [4, 4]))
