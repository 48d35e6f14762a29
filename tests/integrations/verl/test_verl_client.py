"""The client of verl's rollout engines, against engines written by hand."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("verl")

from rollwise.integrations.verl import client

pytestmark = pytest.mark.verl


@pytest.mark.parametrize("drops", [True, False])
def test_cancelling_waits_until_the_engine_has_let_go(monkeypatch, drops):
    """With an engine that drops requests it ends soon; with another once the response is done."""
    dropped = []
    monkeypatch.setattr(client.ray, "cancel", dropped.append)

    async def cancel():
        response = asyncio.get_running_loop().create_future()
        engine = SimpleNamespace(generate=SimpleNamespace(remote=lambda **request: response))
        task = asyncio.create_task(client._Server(engine, drops).remote(prompt_ids=[1]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        assert dropped == ([response] if drops else [])
        if drops:
            response.set_exception(ConnectionError("dropped"))
        else:
            response.set_result("done")
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())


def test_each_part_of_a_response_has_a_seed_of_its_own():
    request = {"prompt_ids": [1, 2], "sampling_params": {"seed": 5, "max_tokens": 7}}
    first = client.with_seed_of_part(request)
    second = client.with_seed_of_part(request | {"prompt_ids": [1, 2, 3]})
    assert len({part["sampling_params"]["seed"] for part in (first, second)} - {5}) == 2
    assert first["sampling_params"]["max_tokens"] == 7
    assert client.with_seed_of_part(request) == first
    unseeded = {"prompt_ids": [1], "sampling_params": {}}
    assert client.with_seed_of_part(unseeded) == unseeded
