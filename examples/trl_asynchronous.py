"""Single responses with TRL's asynchronous trainer: draw on one GPU, learn on another.

CUDA_VISIBLE_DEVICES=0 VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen2.5-Math-1.5B \
    --logprobs-mode processed_logprobs --weight-transfer-config '{"backend": "nccl"}'
CUDA_VISIBLE_DEVICES=1 python examples/trl_asynchronous.py --data math_train.parquet

The file has the columns `prompt`, as TRL takes it, and `answer`.
"""

import argparse

from datasets import load_dataset
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

from rollwise.grading import MathGrader, as_reward_function
from rollwise.integrations.trl import grpo_config
from rollwise.integrations.trl.asynchronous import SessionRolloutWorker


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="a parquet file")
    parser.add_argument("--model", default="Qwen/Qwen2.5-Math-1.5B")
    parser.add_argument("--steps", type=int, default=400, help="updates, each of 128 responses")
    parser.add_argument("--output", default="runs/trl-asynchronous")
    arguments = parser.parse_args()

    args = grpo_config(
        kind=AsyncGRPOConfig,
        output_dir=arguments.output,
        max_steps=arguments.steps,
        max_completion_length=3072,
        max_staleness=4,  # updates by which weights may be behind
        save_steps=20,
        report_to="none",
    )
    problems = load_dataset("parquet", data_files=arguments.data, split="train")
    with MathGrader(timeout=2.0) as grader:
        worker = SessionRolloutWorker(
            arguments.model, as_reward_function(grader, answer_column="answer"), args, problems
        )
        trainer = AsyncGRPOTrainer(
            model=arguments.model,
            args=args,
            train_dataset=problems,
            rollout_worker=worker,  # draws and grades
            callbacks=[worker],  # keeps the prompt sampler's state in checkpoints
        )
        trainer.train()


if __name__ == "__main__":
    main()
