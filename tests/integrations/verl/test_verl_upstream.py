"""Every name of verl's that is overridden or used, with the parameters that are relied on.

When one of these fails, verl has moved: look at what the name does now before changing the line.
"""

import importlib
import inspect

import pytest

pytest.importorskip("verl")

pytestmark = pytest.mark.verl

WORKER = "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopWorkerTQ.__ray_actor_class__"
MANAGER = "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopManagerTQ"
BUFFER = "verl.trainer.ppo.v1.replay_buffer:ReplayBuffer"
ASYNC_BUFFER = "verl.trainer.ppo.v1.replay_buffer:ReplayBufferAsync"
TRAINER = "verl.trainer.ppo.v1.trainer_sync:PPOTrainerSync"
COLOCATED = "verl.trainer.ppo.v1.trainer_colocate_async:PPOTrainerColocateAsync"
SEPARATE = "verl.trainer.ppo.v1.trainer_separate_async:PPOTrainerSeparateAsync"
CLIENT = "verl.workers.rollout.llm_server:LLMServerClient"
REWARD = "verl.experimental.reward_loop.reward_manager.base:RewardManagerBase"

SIGNATURES = {
    f"{WORKER}._run_prompt": "self, prompt, sampling_params, trajectory, trace",
    f"{WORKER}._run_agent_loop": "self, sampling_params, trajectory, agent_name, trace, kwargs",
    f"{WORKER}._agent_loop_postprocess": "self, output, validate, kwargs",
    f"{WORKER}._compute_score": "self, outputs, kwargs",
    f"{MANAGER}.__init__": "self, args, kwargs",
    f"{BUFFER}._materialize_batch": "self, partition_id, selected_prompt_uids, partition_snapshot",
    f"{ASYNC_BUFFER}._evict_terminal_groups": "self, global_steps, partition_id, eviction_reasons",
    f"{TRAINER}.__init__": "self, config",
    f"{TRAINER}.step": "self, metrics, timing_raw",
    f"{COLOCATED}.get_llm_client": "self",
    f"{SEPARATE}.get_llm_client": "self",
    f"{TRAINER}._init_dataloader": "self",
    f"{TRAINER}._next_train_batch": "self, num_prompts",
    f"{TRAINER}.get_llm_client": "self",
    f"{TRAINER}.on_sample_end": "self",
    f"{TRAINER}.on_train_begin": "self",
    f"{TRAINER}._compute_advantage": "self, batch, metrics",
    f"{TRAINER}._save_checkpoint": "self",
    f"{TRAINER}._load_checkpoint": "self",
    f"{TRAINER}._val_metrics_update": (
        "self, data_sources, sample_uids, reward_extra_infos_dict, sample_turns, "
        "expected_acc_counts"
    ),
    f"{TRAINER}._compute_metrics": "self, batch, metrics, timing_raw, global_steps, epoch",
    f"{CLIENT}._acquire_server": "self, request_id, extra",
    f"{REWARD}.__init__": "self, config, tokenizer, compute_score",
    f"{REWARD}.run_single": "self, data",
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

USED = [
    "verl.trainer.ppo.core_algos:ADV_ESTIMATOR_REGISTRY",
    "verl.trainer.ppo.v1.trainer_base:TRAINER_REGISTRY",
    "verl.trainer.main_ppo:main",
]


def find(name):
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        assert hasattr(found, part), f"verl has no {name} any more: {part} is missing"
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", SIGNATURES, ids=lambda name: name.partition(":")[2])
def test_what_is_overridden_has_the_parameters_that_it_had(name):
    # Ray adds a parameter of its own to the methods of an actor class.
    found = [p for p in inspect.signature(find(name)).parameters if p != "_ray_trace_ctx"]
    parameters = ", ".join(found)
    assert parameters == SIGNATURES[name], f"the parameters of verl's {name} have changed"


@pytest.mark.parametrize("name", USED)
def test_what_is_used_is_there(name):
    find(name)


def test_an_override_that_is_not_listed_is_noticed():
    """Each method of ours that replaces one of verl's has its line above."""
    from rollwise.integrations.verl import agent_loop, client, replay_buffer, reward, trainer

    ours = {
        WORKER: agent_loop.SessionWorker,
        MANAGER: agent_loop.SessionLoopManager,
        BUFFER: replay_buffer.PoolReplayBuffer,
        TRAINER: trainer.RollwiseTrainer,
        CLIENT: client.CancellingClient,
        REWARD: reward.GraderRewardManager,
    }
    for base, kind in ours.items():
        replaced = [n for n, f in vars(kind).items() if callable(f) and hasattr(find(base), n)]
        unlisted = [n for n in replaced if f"{base}.{n}" not in SIGNATURES]
        assert unlisted in ([], ["__init__"]), f"{kind.__name__}: {unlisted}"
