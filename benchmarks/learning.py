"""How fast the learner learns, and how much memory its log-probabilities take.

Every ratio is of two forms that take turns within one run, in seconds of the processor; it is the
median over the pairs, its interval their quartiles.

  packed_ratio          tokens a second without padding over those with it; a random model of 6 M
                        parameters, responses of log-normal length: median 150 tokens, sigma 0.9,
                        cut at 1,024, prompts of 40 to 200; a micro-batch of 4,096 tokens
  packed_ratio_sums     the same with the built-in model and responses to its own task
  *_padding             the share of padding in the padded form
  memory_ratio          peak memory of the forward and backward pass of 2,048 tokens with a head of
                        152,000 words: all logits at once over a chunk at a time, each in a process
                        of its own, less what such a process takes without the passes
  head_time_ratio       the time of the first over that of the second

    python benchmarks/learning.py [--quick] [--pairs N] [--part packed|sums|head]...
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from rollwise.config import BUILT_IN, LearnerSettings, ModelSettings
from rollwise.models.loading import load_model
from rollwise.step import Example
from rollwise.training.forward import CHUNK_LOGITS, token_logprobs
from rollwise.training.learner import Learner
from rollwise.training.micro_batches import micro_batches

VOCABULARY, HIDDEN = 152_000, 64
PARTS = ("packed", "sums", "head")
Estimate = tuple[float, float, float]


def make_examples(
    count: int, prompts: tuple[int, int], median: float, sigma: float, longest: int, words: int
) -> list[Example]:
    """Make responses of random tokens and log-normal lengths."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(median), sigma, count), 2, longest).astype(int)
    examples = []
    for length in lengths:
        prompt = rng.integers(2, words, rng.integers(*prompts, endpoint=True)).tolist()
        response = rng.integers(2, words, length).tolist()
        advantage = float(rng.choice([-1.0, 1.0]))
        examples.append(Example(prompt, response, np.full(length, -3, np.float32), advantage))
    return examples


def model_of_6m() -> PreTrainedModel:
    """Make a random Qwen2 model."""
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=4096,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=2048,
        )
    ).eval()


def padding(examples: Sequence[Example], budget: int) -> float:
    """Return the share of places that hold padding."""
    used = places = 0
    for batch in micro_batches(examples, range(len(examples)), budget):
        rows = [examples[i] for i in batch]
        used += sum(map(len, rows))
        width = max(len(r.prompt) for r in rows) + max(len(r.response) for r in rows)
        places += len(rows) * width
    return 1 - used / places


def quartiles(ratios: Sequence[float]) -> Estimate:
    """Return the median and the quartiles."""
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return float(middle), float(low), float(high)


def compare(
    model: PreTrainedModel, examples: Sequence[Example], budget: int | None, pairs: int
) -> tuple[Estimate, float]:
    """Return the ratio of padded to packed seconds, and the tokens learnt a second when packed."""
    learners = [
        Learner(
            model,
            LearnerSettings(learning_rate=1e-9, packed=packed, micro_batch_tokens=budget),
        )
        for packed in (False, True)
    ]
    ratios, packed_seconds = [], []
    for pair in range(pairs + 1):
        seconds = []
        for learner in learners:
            began = time.process_time()
            learner.learn(examples)
            seconds.append(time.process_time() - began)
        if pair:  # the first warms up
            ratios.append(seconds[0] / seconds[1])
            packed_seconds.append(seconds[1])
    tokens = sum(len(example.response) for example in examples)
    return quartiles(ratios), tokens / statistics.median(packed_seconds)


def head_passes(chunk: int, tokens: int) -> dict[str, float]:
    """Run the head forward and backward; `chunk` 0 only makes what is needed for it."""
    torch.manual_seed(0)
    states = torch.randn(tokens, HIDDEN, requires_grad=True)
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)
    head.weight.grad = torch.zeros_like(head.weight)
    chosen = torch.randint(VOCABULARY, (tokens,))
    began = time.process_time()
    if chunk:
        logprobs, entropy = token_logprobs(head, states, chosen, 0.9, True, chunk)
        (logprobs.mean() + entropy.mean()).backward()
    seconds = time.process_time() - began
    return {"gb": peak_gb(), "seconds": seconds}


def peak_gb() -> float:
    """Return the most memory that this process has had; `getrusage` would count its parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9


def in_a_process(chunk: int, tokens: int) -> dict[str, float]:
    """Run `head_passes` in a process of its own, so that its peak is its own."""
    command = [sys.executable, __file__, "--head", str(chunk), "--tokens", str(tokens)]
    found: dict[str, float] = json.loads(subprocess.check_output(command))
    return found


def compare_heads(tokens: int, pairs: int) -> dict[str, Estimate | float]:
    """Return what all logits at once take, in chunks of a chunk."""
    nothing = in_a_process(0, tokens)["gb"]
    memory, seconds, whole, chunked = [], [], 0.0, 0.0
    for _ in range(pairs):
        at_once = in_a_process(tokens, tokens)
        in_chunks = in_a_process(CHUNK_LOGITS // VOCABULARY, tokens)
        whole, chunked = at_once["gb"] - nothing, in_chunks["gb"] - nothing
        memory.append(whole / chunked)
        seconds.append(at_once["seconds"] / in_chunks["seconds"])
    return {
        "memory_ratio": quartiles(memory),
        "memory_gb_at_once": whole,
        "memory_gb_in_chunks": chunked,
        "head_time_ratio": quartiles(seconds),
    }


def main() -> None:
    """Measure, print a table, and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="A first look within a minute.")
    parser.add_argument("--pairs", type=int, help="Pairs of each ratio; 5 by default.")
    parser.add_argument("--part", choices=PARTS, action="append", help="Only this; repeatable.")
    parser.add_argument("--head", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, default=2048, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.head is not None:
        print(json.dumps(head_passes(given.head, given.tokens)))
        return
    pairs = given.pairs or (1 if given.quick else 5)
    parts = given.part or PARTS
    found: dict[str, Estimate | float] = {}
    if "packed" in parts:
        examples = make_examples(8 if given.quick else 48, (40, 200), 150, 0.9, 1024, 4096)
        found["packed_ratio"], found["packed_tokens_a_second"] = compare(
            model_of_6m(), examples, 4096, pairs
        )
        found["packed_padding"] = padding(examples, 4096)
    if "sums" in parts:
        sums = make_examples(64 if given.quick else 256, (12, 40), 18, 0.4, 48, 17)
        built_in, _ = load_model(ModelSettings(path=BUILT_IN, cpu_threads=1))
        found["packed_ratio_sums"], found["packed_tokens_a_second_sums"] = compare(
            built_in, sums, None, 2 * pairs
        )
        found["packed_padding_sums"] = padding(sums, 1024)
    if "head" in parts:
        found |= compare_heads(512 if given.quick else 2048, pairs)
    table = Table("figure", "median", "quartiles")
    for name, value in found.items():
        if isinstance(value, tuple):
            table.add_row(name, f"{value[0]:.2f}", f"{value[1]:.2f} to {value[2]:.2f}")
        else:
            table.add_row(name, f"{value:,.2f}", "")
    Console().print(table)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
