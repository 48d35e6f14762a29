"""The server engine, against a real server over HTTP that also fails or hangs."""

import asyncio
import json
import sys
import time
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from completions_server import CONTEXT
from tiny_models import LIMIT, complete, complete_one, make_draws

from rollwise import loops
from rollwise.cli import main
from rollwise.config import make_config
from rollwise.engines import LostDraw
from rollwise.engines.settings import ServerSettings
from rollwise.engines.testing import EngineContract
from rollwise.errors import ConfigError, EngineError
from rollwise.sampling import Draw

pytest.importorskip("openai")

from rollwise.engines.server import EXTENSIONS, SEEDS, ServerEngine

SLOTS = 8
PATIENCE = 120  # seconds for what must come; only what is broken takes as long


class TestContract(EngineContract):
    @pytest.fixture(autouse=True)
    def over_a_server(self, engine_at, local):
        self.make, self.prompts = engine_at, local[2]

    def weights(self):
        return None

    def test_weights_are_refused(self):
        with pytest.raises(EngineError, match="uses its own weights and cannot load others"):
            self.make().load_weights({})


@pytest.mark.parametrize("extensions", [False, True])
def test_responses_are_those_of_the_model(engine_at, server, local, extensions):
    """Also by a server that gives texts, and nothing else."""
    builtin, _, prompts = local
    draws = make_draws(6, prompts)
    done = complete(engine_at(extensions=extensions), draws, prompts)
    if not extensions:
        assert not any(request.keys() & EXTENSIONS for request in server.requests)
    folded = [replace(draw, seed=draw.seed % SEEDS) for draw in draws]
    wanted = complete(builtin, folded, prompts).values()
    for found, expected in zip(done.values(), wanted, strict=True):
        assert (found.tokens, found.text) == (expected.tokens, expected.text)
        assert found.truncated is expected.truncated
        assert len(found.logprobs) == 0
    assert {response.truncated for response in done.values()} == {True, False}
    assert server.most <= SLOTS


def test_a_request_asks_for_the_whole_distribution(engine_at, server, local):
    prompts = local[2]
    draw = make_draws(1, prompts)[0]
    assert draw.seed > SEEDS
    complete(engine_at(ends={7, 1}), [draw], prompts)
    assert server.requests == [
        {
            "model": "running-sums",
            "stop_token_ids": [1, 7],
            "prompt": prompts[draw.key],
            "n": 1,
            "max_tokens": LIMIT,
            "temperature": 1.0,
            "top_p": 1.0,
            "seed": draw.seed % SEEDS,
            "return_token_ids": True,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "repeat_penalty": 1.0,
        }
    ]


def test_what_is_cancelled_is_aborted_and_frees_its_slot(engine_at, server, local):
    engine, prompts, draws = engine_at(slots=1), local[2], make_draws(1, local[2])
    server.faults = ["hang"]

    async def cancel_two_of_three():
        first, second, third = (
            asyncio.create_task(engine.complete(draw, prompts[draw.key])) for draw in draws
        )
        await asyncio.to_thread(server.hanging.acquire)
        first.cancel()
        third.cancel()
        assert (await second).tokens
        return await asyncio.gather(first, third, return_exceptions=True)

    ends = loops.run(cancel_two_of_three())
    assert {*map(type, ends)} == {asyncio.CancelledError}
    assert server.left.wait(PATIENCE)
    assert len(server.requests) == 2


def test_a_prompt_that_is_too_long_is_named_and_not_sent_again(engine_at, server, local):
    prompts = local[2] | {"endless": [5] * (CONTEXT - LIMIT + 1)}
    engine = engine_at(retries=3)
    message = "refuses the prompt 'endless' of 53 tokens with max_tokens 12 .*context is 64 tokens"
    with pytest.raises(EngineError, match=message):
        complete(engine, [Draw("endless", 0, 1)], prompts)
    assert len(server.requests) == 1


def test_the_key_comes_from_the_environment_and_is_told_to_the_server_alone(
    engine_at, server, local, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "ambient")
    monkeypatch.setenv("OPENAI_ORG_ID", "organisation")
    monkeypatch.setenv("MY_KEY", "secret-key\n")
    complete_one(engine_at(), local[2])
    assert "ambient" not in str(server.headers)
    engine = engine_at(api_key_env="MY_KEY")
    server.faults = ["broken", "refused"]
    assert "you sent Bearer ***" in complete_one(engine, local[2]).reason
    with pytest.raises(EngineError, match="the key in MY_KEY is not accepted") as refused:
        complete_one(engine, local[2])
    assert "secret-key" not in str(refused.value)
    assert [{k.lower(): v for k, v in h.items()}["authorization"] for h in server.headers] == [
        *("Bearer none", "Bearer secret-key", "Bearer secret-key"),
    ]
    assert "organisation" not in str(server.headers)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base_url": ""}, "needs a value for `engine.base_url`"),
        ({"model": ""}, "needs a value for `engine.model`"),
        ({"api_key_env": "NO_KEY"}, "the environment variable NO_KEY is not set"),
        ({"api_key_env": "ODD_KEY"}, "the environment variable ODD_KEY holds characters that no"),
        ({}, r"pip install 'rollwise\[server\]'"),
    ],
)
def test_what_is_missing_is_named(local, settings, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.setenv("ODD_KEY", "a\nb")
    given = {"base_url": "http://localhost/v1", "model": "m", **settings}
    with pytest.raises((ConfigError, EngineError), match=message):
        ServerEngine(ServerSettings(**given), local[1], LIMIT)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8000", "must begin with http:// or https://"),
        ("https://me:secret@host/v1", "must hold no password"),
        ("https://host/v1?key=secret", "must hold no password"),
    ],
)
def test_an_address_that_will_not_do_is_refused_and_not_shown(url, message):
    with pytest.raises(ConfigError, match=message) as refused:
        make_config({"engine": {"type": "server", "base_url": url}})
    assert "secret" not in str(refused.value)


def test_training_refuses_a_server(tmp_path, capsys):
    assert main(["train", "--output", str(tmp_path / "run"), "--engine.type", "server"]) == 2
    assert "cannot take the learner's weights" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_evaluation_draws_from_a_server(server, tmp_path, monkeypatch, capsys):
    """As many responses to the same problems as from the built-in engine; no key is recorded."""
    monkeypatch.setenv("MY_KEY", "secret-key")
    settings = ["--data.problems", "3", "--samples", "4", "--engine.max_new_tokens", str(LIMIT)]
    at_server = ["--engine.type", "server", "--engine.base_url", server.url]
    at_server += ["--engine.model", "running-sums", "--engine.api_key_env", "MY_KEY"]
    for name, given in (("local", []), ("server", at_server)):
        assert main(["evaluate", "--output", str(tmp_path / name), *settings, *given]) == 0
    tables = [pq.read_table(tmp_path / name / "responses") for name in ("local", "server")]
    drawn = [[(row["key"], row["index"]) for row in table.to_pylist()] for table in tables]
    assert sorted(drawn[0]) == sorted(drawn[1])
    assert len(drawn[1]) == 12
    assert json.loads((tmp_path / "server" / "summary.json").read_text())["benchmarks"]
    assert "Bearer secret-key" in str(server.headers)
    files = [path for path in (tmp_path / "server").rglob("*") if path.is_file()]
    assert [path for path in files if b"secret-key" in path.read_bytes()] == []
    assert "secret-key" not in str(capsys.readouterr())


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("busy", "429"),
        ("broken", "500"),
        ("garbage", "JSONDecodeError"),
        ("strange", "choices"),
        ("cut", "Connection error"),
        ("aborted", "the server ended it with 'abort'"),
    ],
)
def test_what_fails_is_lost_with_the_reason_and_the_others_are_not(
    engine_at, server, local, fault, reason
):
    prompts = local[2]
    server.faults = [None, fault]
    outcomes = complete(engine_at(), make_draws(2, prompts), prompts).values()
    (lost,) = [outcome for outcome in outcomes if isinstance(outcome, LostDraw)]
    assert reason in lost.reason


def test_a_text_that_no_tokenizer_takes_is_a_response_within_the_limit(engine_at, server, local):
    server.faults = ["odd"]
    odd = complete_one(engine_at(), local[2])
    assert odd.text == "?" * LIMIT
    assert 0 < len(odd.tokens) <= LIMIT


@pytest.mark.parametrize("fault", ["busy", "broken", "cut"])
def test_what_may_pass_is_tried_again_when_the_server_says(engine_at, server, local, fault):
    """The client's own first wait is half a second at most."""
    server.retry_after, server.faults, began = "1", [fault], time.monotonic()
    assert complete_one(engine_at(retries=1), local[2]).tokens
    assert server.requests[0] == server.requests[1]
    assert len(server.requests) == 2
    assert fault != "busy" or time.monotonic() - began > 0.9


def test_a_draw_that_takes_too_long_is_lost_and_its_request_aborted(engine_at, server, local):
    server.faults = ["hang"]
    assert "timed out after 0.2 s" in complete_one(engine_at(draw_timeout=0.2), local[2]).reason
    assert server.left.wait(PATIENCE)


def test_a_server_that_is_not_there_is_given_up(engine_at, server, local, monkeypatch):
    monkeypatch.setattr("rollwise.engines.server.LOSSES", 6)
    prompts = local[2]
    engine = engine_at(base_url="http://127.0.0.1:9/v1")
    done = complete(engine, make_draws(1, prompts), prompts)
    assert all("Connection error" in outcome.reason for outcome in done.values())
    message = r"6 draws in a row were lost by the server at http://127"
    with pytest.raises(EngineError, match=message):
        complete(engine, make_draws(1, prompts), prompts)
