"""A server that fails or hangs: what is lost, retried and drawn again."""

import time

import pytest
from tiny_models import complete, complete_one, make_draws

from rollwise.engines import Completion, LostDraw
from rollwise.errors import EngineError
from rollwise.sampling import Balanced, RolloutSession, Streamed
from rollwise.step.session import finished, run_session

pytest.importorskip("openai")


PATIENCE = 120  # seconds for what must come; only what is broken takes as long


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("busy", "429"),
        ("broken", "500"),
        ("garbage", "JSONDecodeError"),
        ("strange", "choices"),
        ("cut", "Connection error"),
        ("aborted", "the server ended it by 'abort'"),
    ],
)
def test_what_fails_is_lost_with_the_reason_and_the_others_are_not(
    engine_at, server, local, fault, reason, caplog
):
    prompts = local[2]
    server.faults = [None, fault]
    outcomes = complete(engine_at(), make_draws(2, prompts), prompts).values()
    (lost,) = [outcome for outcome in outcomes if isinstance(outcome, LostDraw)]
    assert reason in lost.reason
    assert f"1 draws were lost: {lost.reason}" in caplog.text


@pytest.mark.parametrize("fault", ["busy", "broken", "cut"])
def test_what_may_pass_is_tried_again_when_the_server_says(engine_at, server, local, fault):
    """The client's own first wait is half a second at most."""
    server.retry_after, server.faults, began = "1", [fault], time.monotonic()
    assert isinstance(complete_one(engine_at(retries=1), local[2]), Completion)
    assert server.requests[0] == server.requests[1]
    assert len(server.requests) == 2
    assert fault != "busy" or time.monotonic() - began > 0.9


def test_a_draw_that_takes_too_long_is_lost_and_its_request_aborted(engine_at, server, local):
    server.faults = ["hang"]
    assert "not done after 0.2 s" in complete_one(engine_at(draw_timeout=0.2), local[2]).reason
    assert server.left.wait(PATIENCE)


def test_a_server_that_is_not_there_is_given_up(engine_at, server, local):
    prompts = local[2]
    engine = engine_at(base_url="http://127.0.0.1:9/v1", losses=6)
    done = complete(engine, make_draws(1, prompts), prompts)
    assert all("Connection error" in outcome.reason for outcome in done.values())
    with pytest.raises(
        EngineError, match=r"6 draws in a row were lost by the server at http://127"
    ):
        complete(engine, make_draws(1, prompts), prompts)


def grade(completions):
    """A response of an even number of tokens is correct."""
    return [finished(float(len(completion.tokens) % 2 == 0)) for completion in completions]


def test_faults_lose_their_draws_and_nothing_else(engine_at, server, local):
    found, prompts = [], local[2]
    faults = ["busy", None, "garbage", "cut", None, None, "aborted", "broken", "strange"]
    for server.faults in ([], faults):
        session = RolloutSession(list(prompts), Balanced(2, 2), Streamed(max_samples=12), seed=3)
        run_session(session, engine_at(), prompts, grade)
        assert session.lost == 0
        pools = session.pools.items()
        found.append({k: (p.exit_reason, [*p.rewards], p.responses) for k, p in pools})
    assert repr(found[0]) == repr(found[1])
    assert session.failures >= 5  # one of a draw that is surplus may be of no interest
