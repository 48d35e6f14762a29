"""What we replace and call of verl's still takes the parameters that we rely on.

When one of these fails, verl has moved: look at what the name does now before changing the line.
"""

import importlib
import inspect

import pytest

pytest.importorskip("verl")

from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

from rollwise.integrations.verl import agent_loop, client, replay_buffer, trainer
from rollwise.integrations.verl.reward import GraderRewardManager

pytestmark = pytest.mark.verl


class Worker(agent_loop.SessionWorker, AgentLoopWorkerTQ.__ray_actor_class__):
    pass


OURS = [
    *(Worker, agent_loop.SessionLoopManager, client.CancellingClient),
    *(replay_buffer.PoolReplayBuffer, replay_buffer.AsyncPoolReplayBuffer, GraderRewardManager),
    *(trainer.RollwiseTrainer, trainer.ColocateAsyncTrainer),
    trainer.SeparateAsyncTrainer,
]
WORKER = "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopWorkerTQ.__ray_actor_class__"
CALLED = {
    f"{WORKER}._run_agent_loop": "self, sampling_params, trajectory, agent_name, trace, kwargs",
    f"{WORKER}._compute_score": "self, outputs, kwargs",
    "verl.workers.rollout.llm_server:LLMServerManager.get_client": "self, client_cls, kwargs",
    "verl.trainer.ppo.v1.trainer_base:register_trainer": "name",
    "verl.utils.dataset.rl_dataset:collate_fn": "data_list",
    "verl.utils.tensordict_utils:get_tensordict": "tensor_dict, non_tensor_dict",
    "verl.utils.tensordict_utils:assign_non_tensor_data": "tensor_dict, key, val",
    "transfer_queue:async_kv_put": "key, partition_id, fields, tag, data_parser",
    "transfer_queue:kv_list": "partition_id",
    "transfer_queue:kv_clear": "keys, partition_id",
    "transfer_queue:KVBatchMeta": "keys, tags, partition_id, fields, extra_info",
}


def parameters(function):
    # Ray adds a parameter of its own to the methods of an actor class.
    found = inspect.signature(function).parameters.values()
    return [parameter for parameter in found if parameter.name != "_ray_trace_ctx"]


def replaced(kind):
    """List each method of ours that replaces one of verl's, with verl's."""
    theirs = [base for base in kind.__mro__ if base.__module__.startswith("verl")]
    for name, own in inspect.getmembers(kind, inspect.isfunction):
        found = [vars(base)[name] for base in theirs if name in vars(base)]
        if found and own.__module__.startswith("rollwise"):
            yield name, own, found[0]


@pytest.mark.parametrize("kind", OURS)
def test_what_replaces_a_method_takes_what_that_is_given(kind):
    methods = [*replaced(kind)]
    assert methods, f"{kind.__name__} replaces nothing of verl's any more"
    for name, own, theirs in methods:
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        given = {p.name: None for p in parameters(theirs) if p.kind not in several}
        try:
            inspect.signature(own).bind(**given)
        except TypeError as error:
            raise AssertionError(f"{name} is now given {', '.join(given)}: {error}") from error


@pytest.mark.parametrize("name", CALLED, ids=lambda name: name.partition(":")[2])
def test_what_is_called_has_the_parameters_that_it_had(name):
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        assert hasattr(found, part), f"verl has no {name} any more: {part} is missing"
        found = getattr(found, part)
    assert ", ".join(parameter.name for parameter in parameters(found)) == CALLED[name]
