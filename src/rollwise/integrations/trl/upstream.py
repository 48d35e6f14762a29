"""What of TRL is used beyond its documented interface."""

_GRPO = "trl.trainer.grpo_trainer:GRPOTrainer"
_ASYNC = "trl.experimental.async_grpo"

UPSTREAM = {
    f"{_GRPO}._generate_and_score_completions(inputs)": "replaces prompts and advantages",
    f"{_GRPO}._calculate_rewards(inputs, prompts, completions, completion_ids_list)": (
        "grades responses as they are drawn, and hands the rewards back"
    ),
    f"{_GRPO}._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations)": (
        "draws by transformers, with TRL's settings"
    ),
    f"{_GRPO}._last_loaded_step": "tells whether vLLM has the newest weights",
    f"{_GRPO}.vllm_generation": "draws by vLLM",
    f"{_GRPO}._pending_extra_logs": "keeps what reward functions log beside its response",
    f"{_GRPO}._logs": "shows the advantages in the table of completions",
    f"{_GRPO}.rollout_func": "hands responses over",
    f"{_GRPO}.num_generations": "counts epochs by the size of a group, which may be 1",
    "trl.chat_template_utils:parse_response": "reads a message out of a response's tokens",
}
"""Name (`rollwise.releases.moved`) -> what `AdaptiveGRPOTrainer` needs it for."""

UPSTREAM_ASYNC = {
    f"{_ASYNC}.async_rollout_worker:RolloutSample.__init__(prompt, completion, input_ids, "
    "completion_mask, old_log_probs, advantage, model_version, group_id, metrics, enqueued_at)": (
        "is what the trainer's queue holds"
    ),
    f"{_ASYNC}.async_grpo_trainer:AsyncGRPOTrainer.rollout_worker": "takes the worker",
    **{
        f"{_ASYNC}.async_grpo_trainer:RolloutWorkerProtocol.{call}": "is what the trainer calls"
        for call in (
            "start",
            "stop",
            "update_model_version(model_version)",
            "check_health(stale_after_s)",
        )
    },
}
"""Likewise, for `SessionRolloutWorker`."""
