"""How fast the learner learns from packed rows, against padded ones.

Every ratio is of two forms that take turns within one run, in seconds of the processor; it is the
median over the pairs, its interval their quartiles.

  packed_ratio          tokens a second without padding over those with it; a random model of 6 M
                        parameters, responses of log-normal length: median 150 tokens, sigma 0.9,
                        cut at 1,024, prompts of 40 to 200; a micro-batch of 4,096 tokens
  sums_ratio            the same with the built-in model and responses to its own task
  *_padding             the share of padding in the padded form

    python benchmarks/speed/learning.py [--quick] [--pairs N] [--part packed|sums]...
"""

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from rollwise.config import BUILT_IN, LearnerSettings, ModelSettings
from rollwise.models.loading import load_model
from rollwise.step import Example, Response
from rollwise.training.learner import Learner
from rollwise.training.micro_batches import micro_batches

sys.path.append(str(Path(__file__).parents[1]))

from measuring import Figure, arguments, in_turns, report

PARTS = ("packed", "sums")


def make_examples(
    count: int, prompts: tuple[int, int], median: float, sigma: float, longest: int, words: int
) -> list[Example]:
    """Make responses of random tokens and log-normal lengths."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(median), sigma, count), 2, longest).astype(int)
    examples = []
    for length in lengths:
        prompt = rng.integers(2, words, rng.integers(*prompts, endpoint=True)).tolist()
        tokens = rng.integers(2, words, length).tolist()
        advantage = float(rng.choice([-1.0, 1.0]))
        response = Response(tokens, np.full(length, -3, np.float32))
        examples.append(Example(prompt, response, advantage))
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
        width = max(len(r.prompt) for r in rows) + max(len(r.response.tokens) for r in rows)
        places += len(rows) * width
    return 1 - used / places


def compare(
    name: str, model: PreTrainedModel, examples: Sequence[Example], budget: int | None, pairs: int
) -> dict[str, Figure]:
    """Return the ratio of padded to packed seconds, and the share of padding."""

    def seconds(learner: Learner) -> float:
        began = time.process_time()
        learner.learn(examples)
        return time.process_time() - began

    padded, packed = (
        partial(
            seconds,
            Learner(
                model,
                LearnerSettings(learning_rate=1e-9, packed=each, micro_batch_tokens=budget),
            ),
        )
        for each in (False, True)
    )
    return {
        f"{name}_ratio": in_turns(packed, [padded], pairs, name),
        f"{name}_padding": {"value": padding(examples, budget or 1024)},
    }


def main() -> None:
    """Measure, print a table, and a line of JSON."""
    parser = arguments(__doc__, "one pair, fewer responses", pairs=5)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this; repeatable")
    given = parser.parse_args()
    torch.set_num_threads(1)
    pairs, parts = 1 if given.quick else given.pairs, given.part or PARTS
    found: dict[str, Figure] = {}
    if "packed" in parts:
        examples = make_examples(8 if given.quick else 48, (40, 200), 150, 0.9, 1024, 4096)
        found |= compare("packed", model_of_6m(), examples, 4096, pairs)
    if "sums" in parts:
        sums = make_examples(64 if given.quick else 256, (12, 40), 18, 0.4, 48, 17)
        built_in, _ = load_model(ModelSettings(path=BUILT_IN, cpu_threads=1))
        found |= compare("sums", built_in, sums, None, 2 * pairs)
    report(f"{pairs} pairs; above 1: packed rows are faster", found, ".2f")


if __name__ == "__main__":
    main()
