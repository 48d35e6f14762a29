"""Tiny runs of TRL's trainers on running sums, with the built-in model."""

from types import SimpleNamespace

from datasets import Dataset
from trl import GRPOConfig

from rollwise.config import ModelSettings
from rollwise.integrations.trl import AdaptiveGRPOTrainer, AdaptiveSampling
from rollwise.models.loading import load_model
from rollwise.tasks import make_running_sums

PROMPTS = 4
GROUP = 4
PROBLEMS = make_running_sums(24, max_terms=5, seed=0)

ON_CPU = {
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "disable_tqdm": True,
    "seed": 3,
}


def is_correct(completions, answer, **others):
    """A reward function as TRL has them: 1.0 where the text after the last `=` is the answer."""
    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    pairs = zip(texts, answer, strict=True)
    return [float(text.rpartition("=")[2].strip() == right) for text, right in pairs]


def make_arguments(folder, **changed):
    settings = {
        "output_dir": str(folder),
        "max_steps": 2,
        "per_device_train_batch_size": PROMPTS * GROUP,
        "num_generations": GROUP,
        "max_completion_length": 24,
        "learning_rate": 1e-3,
        "scale_rewards": "none",
        **ON_CPU,
    }
    return GRPOConfig(**settings | changed)


def build(
    folder, sampling=None, trainer=AdaptiveGRPOTrainer, rewards=is_correct, given=(), **changed
):
    """Make a trainer of the built-in model; `given` goes to the trainer, `changed` to its args."""
    model, tokenizer = load_model(ModelSettings(device="cpu", cpu_threads=1))
    rows = [{"prompt": p.messages[0]["content"], "answer": p.answer} for p in PROBLEMS]
    options = {
        "model": model,
        "reward_funcs": rewards,
        "train_dataset": Dataset.from_list(rows),
        "processing_class": tokenizer,
        "args": make_arguments(folder, **changed),
    }
    own = {"sampling": sampling or AdaptiveSampling()} if trainer is AdaptiveGRPOTrainer else {}
    return trainer(**options | own | dict(given))


def keep(owner, name, what=lambda result, *arguments: result, patch=setattr):
    """Keep `what` there is in each call of a method, in the list that this returns."""
    real, found = getattr(owner, name), []

    def kept(*arguments):
        result = real(*arguments)
        found.append(what(result, *arguments))
        return result

    patch(owner, name, kept)
    return found


def watch(trainer):
    """Keep the batches that a trainer trains on, the rows of all processes, and the pools."""
    return SimpleNamespace(
        batches=keep(trainer, "_generate_and_score_completions"),
        rows=keep(trainer, "_sample"),
        pools=keep(trainer, "_log_step", lambda _, step: dict(step.rollouts.session.pools)),
    )


def logged(trainer, name):
    return [line[name] for line in trainer.state.log_history if name in line]


def weights_of(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}
