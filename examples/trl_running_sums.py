"""TRL's `GRPOTrainer`, with two names changed: single responses on the built-in task, on a CPU.

python examples/trl_running_sums.py [--steps N]
"""

import argparse

from datasets import Dataset

from rollwise.config import ModelSettings
from rollwise.integrations.trl import AdaptiveGRPOTrainer, grpo_config
from rollwise.models.loading import load_model
from rollwise.tasks import make_running_sums


def is_correct(completions: list[str], answer: list[str], **others: object) -> list[float]:
    """Give 1.0 to `7 12 3 6=6` where the answer is `6`: a reward function as TRL has them."""
    pairs = zip(completions, answer, strict=True)
    return [float(text.rpartition("=")[2].strip() == right) for text, right in pairs]


def main() -> None:
    """Train the built-in model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=320, help="updates, 16 for each 256 draws")
    parser.add_argument("--output", default="runs/trl")
    arguments = parser.parse_args()

    model, tokenizer = load_model(ModelSettings(device="cpu", cpu_threads=1))
    problems = make_running_sums(1024, seed=0)
    rows = [{"prompt": p.messages[0]["content"], "answer": p.answer} for p in problems]
    trainer = AdaptiveGRPOTrainer(  # was: GRPOTrainer(
        model=model,
        reward_funcs=is_correct,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        args=grpo_config(  # was: GRPOConfig(
            output_dir=arguments.output,
            max_steps=arguments.steps,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=1,
            steps_per_generation=16,  # as chosen for models of this size; larger ones have 2
            max_grad_norm=0.03,
            warmup_steps=40,
            max_completion_length=48,
            learning_rate=1.4e-4,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
    )
    trainer.train()


if __name__ == "__main__":
    main()
