"""The peak memory of learning on a CPU beside what `rollwise plan --memory` says of it.

Random Qwen2 models of three sizes, each in a process of its own, which learns twice from responses
that fill one micro-batch of 2,048 tokens. What the process has before the model is made is taken
off; the plan is of the same settings, without an engine.

    python benchmarks/memory.py [--quick]
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import Qwen2Config, Qwen2ForCausalLM

from rollwise.config import LearnerSettings, make_config
from rollwise.evaluation.memory import MemoryPlan, ModelShape, plan_memory
from rollwise.step import Example
from rollwise.training.learner import Learner

TOKENS, LENGTH, PROMPT = 2048, 256, 64
SIZES = {"small": (128, 4, 8_000), "middle": (256, 8, 32_000), "large": (512, 8, 152_000)}
"""Hidden size, layers, words."""


def config_of(size: str) -> Qwen2Config:
    """Return the configuration of a model."""
    hidden, layers, words = SIZES[size]
    return Qwen2Config(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 64,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )


def peak() -> float:
    """Return the most bytes that this process has had."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def measure(size: str, checkpointing: bool) -> float:
    """Learn twice; returns the peak in bytes, less what was there before the model."""
    torch.set_num_threads(1)
    before = peak()
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config_of(size)).eval()
    if checkpointing:
        model.gradient_checkpointing_enable()
    settings = LearnerSettings(micro_batch_tokens=TOKENS)
    learner = Learner(model, settings, threads=1)
    rng = np.random.default_rng(0)
    examples = []
    for _ in range(TOKENS // LENGTH):
        tokens = rng.integers(SIZES[size][2], size=LENGTH).tolist()
        logprobs = np.full(LENGTH - PROMPT, -9, np.float32)
        examples.append(Example(tokens[:PROMPT], tokens[PROMPT:], logprobs, 1.0))
    for _ in range(2):
        learner.learn(examples)
    return peak() - before


def planned(size: str, checkpointing: bool) -> MemoryPlan:
    """Return the plan of the same."""
    shape = ModelShape.of_config(config_of(size).to_dict(), size)
    config = make_config(
        {
            "model": {"path": size, "gradient_checkpointing": checkpointing},
            "data": {"train": "-", "max_prompt_tokens": PROMPT},
            "engine": {"batch_size": 1, "max_new_tokens": LENGTH - PROMPT},
            "learner": {"micro_batch_tokens": TOKENS},
        }
    )
    return plan_memory(shape, config)


def main() -> None:
    """Measure, print a table, and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="Without the largest model.")
    parser.add_argument("--size", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--checkpointing", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.size:
        print(measure(given.size, given.checkpointing))
        return
    table, found = Table("model", "checkpointing", "planned", "measured", "ratio"), {}
    for size in list(SIZES)[: 2 if given.quick else 3]:
        for checkpointing in (False, True):
            command = [sys.executable, __file__, "--size", size]
            command += ["--checkpointing"] if checkpointing else []
            measured = float(subprocess.check_output(command, stderr=subprocess.DEVNULL))
            expected = planned(size, checkpointing).peak
            row = f"{expected / 1e9:.2f} GB", f"{measured / 1e9:.2f} GB"
            table.add_row(size, str(checkpointing), *row, f"{expected / measured:.2f}")
            found[f"{size}{' checkpointed' if checkpointing else ''}"] = [expected, measured]
            print(size, checkpointing, *row, file=sys.stderr)
    Console().print(table)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
