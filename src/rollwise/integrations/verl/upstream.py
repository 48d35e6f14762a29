"""What of verl is used beyond the settings that it documents."""

_TRAINER = "verl.trainer.ppo.v1.trainer_base:PPOTrainer"
_WORKER = "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopWorkerTQ.__ray_actor_class__"
_BUFFER = "verl.trainer.ppo.v1.replay_buffer:ReplayBuffer"

UPSTREAM = {
    f"{_TRAINER}._next_train_batch(num_prompts)": "asks the prompt sampler",
    f"{_TRAINER}._compute_advantage(batch, metrics)": "compares whole pools, before rows are split",
    "verl.trainer.ppo.core_algos:ADV_ESTIMATOR_REGISTRY": "hands the advantages over",
    f"{_TRAINER}._update_actor(batch, metrics)": "makes as many updates as are set",
    f"{_TRAINER}._get_required_batch_multiple(dp_size)": "splits rows evenly over these updates",
    f"{_TRAINER}._save_checkpoint": "writes the sampler's state before the checkpoint is complete",
    f"{_TRAINER}._val_metrics_update": "evaluates by problem, for the run's folder",
    f"{_TRAINER}.on_init_end": "makes the sampler, and loads its state",
    f"{_TRAINER}.on_train_begin": "begins the run's folder",
    f"{_TRAINER}.on_step_end": "logs a step",
    f"{_TRAINER}.on_validate_end": "logs an evaluation",
    f"{_TRAINER}.step(metrics, timing_raw)": "tells the sampler what came of its prompts",
    f"{_TRAINER}.get_llm_client": "takes a client that can cancel a draw",
    f"{_WORKER}._run_prompt(prompt, sampling_params, trajectory, trace)": "runs a prompt's session",
    f"{_WORKER}._run_agent_loop(sampling_params, trajectory)": "plays a draw",
    f"{_WORKER}._agent_loop_postprocess(output, validate)": "stores the chosen draws alone",
    f"{_WORKER}._compute_score(outputs, kwargs)": "grades a draw before it is stored",
    f"{_BUFFER}._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)": (
        "reads the reports of prompts before they are cleared"
    ),
    f"{_BUFFER}._evict_terminal_groups(global_steps, partition_id, eviction_reasons)": (
        "counts failed prompts before they are cleared"
    ),
    f"{_BUFFER}.failure_keys": "tells which prompts have failed",
    "verl.workers.rollout.llm_server:LLMServerClient._acquire_server(request_id)": (
        "cancels the draws that are no longer needed"
    ),
}
"""Name (`rollwise.releases.moved`) -> what the integration needs it for."""
