"""Single responses with TRL on one GPU of 80 GB: mathematics, a model of 1.5 billion parameters.

python examples/trl_math.py --data math.parquet [--model Qwen/Qwen2.5-Math-1.5B] [--steps N]

The file has the columns `prompt`, as TRL takes it, and `answer`. Without a GPU it runs as well, for
a small model.
"""

import argparse

import torch
from datasets import load_dataset

from rollwise.grading import MathGrader, as_reward_function
from rollwise.integrations.trl import AdaptiveGRPOTrainer, grpo_config


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="a parquet file")
    parser.add_argument("--model", default="Qwen/Qwen2.5-Math-1.5B")
    parser.add_argument("--steps", type=int, default=400, help="updates, 2 for each 256 draws")
    parser.add_argument("--longest", type=int, default=3072, help="tokens of a response")
    parser.add_argument("--output", default="runs/trl-math")
    arguments = parser.parse_args()

    gpu = torch.cuda.is_available()
    with MathGrader(timeout=2.0) as grader:
        trainer = AdaptiveGRPOTrainer(
            model=arguments.model,
            reward_funcs=as_reward_function(grader, answer_column="answer"),
            train_dataset=load_dataset("parquet", data_files=arguments.data, split="train"),
            args=grpo_config(
                output_dir=arguments.output,
                max_steps=arguments.steps,
                max_completion_length=arguments.longest,
                logging_steps=16,
                save_steps=20,
                report_to="none",
                use_vllm=gpu,
                vllm_mode="colocate",
                use_cpu=not gpu,
                bf16=gpu,
                gradient_checkpointing=gpu,
            ),
        )
        trainer.train()


if __name__ == "__main__":
    main()
