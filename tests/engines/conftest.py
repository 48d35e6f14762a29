"""A tiny model and the tokenizer of the built-in one, and a server of the shipped model."""

import pytest
from completions_server import CompletionsServer
from tiny_models import LIMIT, make_model, make_tokenizer

from rollwise.config import ModelSettings
from rollwise.engines.settings import ServerSettings
from rollwise.engines.transformers import TransformersEngine
from rollwise.models.encoding import encode_prompts
from rollwise.models.loading import load_model
from rollwise.tasks import make_running_sums


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def local():
    """The shipped model, its tokenizer, its engine; and three short problems."""
    model, tokenizer = load_model(ModelSettings(cpu_threads=1))
    problems = make_running_sums(3, 2, 4, 0)
    prompts = encode_prompts(problems, tokenizer, 40).token_ids
    return TransformersEngine(model, tokenizer, LIMIT, batch_size=1), tokenizer, prompts


@pytest.fixture(scope="module")
def shared_server(local):
    server = CompletionsServer(local[0])
    yield server
    server.close()


@pytest.fixture
def server(shared_server, monkeypatch):
    """One server for all tests, which forgets what it was told and asked."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    shared_server.forget()
    yield shared_server
    assert shared_server.faults == []


@pytest.fixture
def engine_at(server, local):
    """Makes an engine over the server; settings may be given."""
    from rollwise.engines.server import ServerEngine

    made = []

    def make(temperature=1.0, slots=8, ends=(), **settings):
        given = {"base_url": server.url, "model": "running-sums", "retries": 0, **settings}
        engine = ServerEngine(ServerSettings(**given), local[1], LIMIT, temperature, slots, ends)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()
        engine.close()  # once more does no harm


@pytest.fixture(params=["slots", "whole batches"])
def each_way(request, monkeypatch):
    """Models fit into slots, as they do, or none does."""
    if request.param != "slots":
        monkeypatch.setattr("rollwise.engines.transformers.unfit_reason", lambda _: "as told")
    return request.param
