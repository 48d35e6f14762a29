"""How fast the built-in engine draws, against `generate` of transformers and against itself.

Every ratio is of the time that the rival takes to ours, in pairs that take turns within one run, so
that a busy machine slows both; a figure is the median of the pairs' ratios, its interval their
quartiles. The rival gets the better of two batch sizes, found before the pairs begin.

  generate_ratio        the shipped model, 1,024 draws of 40 new tokens
  generate_ratio_25m    a random model of 25 M parameters, 256 draws of 40 new tokens
  limit_ratio, _25m     in the same runs: the time of the linear layers' products, and of reading
                        each key and value once a step (a prompt's for all its draws), over
                        ours: 1 cannot be surpassed
  mixed_lengths_ratio   the same streamed session, responses of 2 to 48 tokens, surplus cancelled
                        where an engine can; `generate` draws a batch to its end
  streamed_time_ratio   the same engine: the time of rounds of 8 over that of streamed draws
  streamed_token_ratio  tokens of streamed draws over those of rounds
  vllm_streamed_...     both on vLLM where it is installed, 256 prompts for 256 slots; `_spare`: 32

    python benchmarks/speed/engines.py [--quick] [--pairs N] [--part NAME]
"""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

import rollwise as rw
from rollwise.config import BUILT_IN, ModelSettings
from rollwise.engines import BatchEngine, Response
from rollwise.engines.settings import VLLMSettings
from rollwise.engines.transformers import TransformersEngine, unfit_reason
from rollwise.engines.vllm import VLLMEngine
from rollwise.grading import ExactGrader
from rollwise.models.encoding import encode_prompts
from rollwise.models.loading import load_model, model_path
from rollwise.sampling import Draw
from rollwise.sampling.draws import draw_seed
from rollwise.step import RolloutCost, grade_with, run_session
from rollwise.tasks import make_running_sums

sys.path.append(str(Path(__file__).parents[1]))

from measuring import Figure, arguments, draw_all, in_turns, quantiles, report

PROMPT = 20
NEW_TOKENS = 40
DRAWS = 8  # of a prompt
LONGEST = 48
LONGEST_PROMPT = 64
STREAMED, ROUNDS = rw.Streamed(32), rw.Rounds(8, 4)
THREADS = sorted({1, torch.get_num_threads()})


class GenerateEngine(BatchEngine):
    """`generate` as an engine: a batch at a time, each drawn until its longest response ends.

    It draws by torch's random numbers, not by those of the draws, which costs it nothing.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int,
        batch_size: int,
    ) -> None:
        super().__init__()
        self.model, self.tokenizer = model, tokenizer
        self.max_new_tokens, self.slots = max_new_tokens, batch_size
        self.waiting: dict[Draw, Sequence[int]] = {}

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Do nothing: the weights are shared."""

    def _begin(self, draw: Draw, prompt: Sequence[int]) -> None:
        self.waiting[draw] = prompt

    def _abandon(self, draw: Draw) -> int:
        self.waiting.pop(draw, None)
        return 0

    @torch.inference_mode()
    def _advance(self) -> list[tuple[Draw, Response]]:
        """Draw the next batch; prompts of similar length go together."""
        order = sorted(self.waiting, key=lambda draw: len(self.waiting[draw]))
        batch = {draw: self.waiting.pop(draw) for draw in order[: self.slots]}
        inputs = self.tokenizer.pad(
            {"input_ids": list(batch.values())}, return_tensors="pt", padding_side="left"
        )
        output = self.model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=True,
            top_k=0,
            max_new_tokens=self.max_new_tokens,
            pad_token_id=0,
        )[:, inputs["input_ids"].shape[1] :]
        texts = self.tokenizer.batch_decode(output, skip_special_tokens=True)
        ended = output == self.model.generation_config.eos_token_id
        first = torch.where(ended.any(dim=1), ended.int().argmax(dim=1) + 1, output.shape[1])
        lengths = first.tolist()
        rows = zip(batch, output.tolist(), lengths, texts, strict=True)
        return [
            (draw, Response(tokens[:length], (), text, length == self.max_new_tokens))
            for draw, tokens, length, text in rows
        ]


def main() -> None:
    """Measure, print."""
    parser = arguments(__doc__, "one pair, fewer draws", pairs=7)
    parser.add_argument("--part", choices=list(PARTS), action="append")
    given = parser.parse_args()
    pairs = 1 if given.quick else given.pairs
    figures: dict[str, Figure] = {}
    for name in given.part or PARTS:
        figures |= PARTS[name](pairs, given.quick)
    report(f"{pairs} pairs; above 1: ours is faster", figures, ".2f")


def against_generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    draws: int,
    pairs: int,
    title: str,
    threads: int,
) -> tuple[Figure, Figure]:
    """Ratios of times for responses of 40 tokens, 8 to a prompt of 20: the rival, the limit.

    `threads` are torch's, as `rollwise train` sets them for the model.
    """
    # No token ends a response, so that both draw the same number.
    model.generation_config.eos_token_id = model.config.vocab_size
    tokenizer.eos_token = None
    rng = random.Random(0)
    vocabulary = model.config.vocab_size
    prompts = {key: rng.choices(range(2, vocabulary), k=PROMPT) for key in range(draws // DRAWS)}
    wanted = [Draw(key, i, draw_seed(0, 0, key, i)) for key in prompts for i in range(DRAWS)]
    engine = make_ours(model, tokenizer, NEW_TOKENS, draws)
    rivals = [
        (GenerateEngine(model, tokenizer, NEW_TOKENS, batch_size), threads)
        for batch_size in (draws // 4, draws)
        for threads in THREADS
    ]

    def seconds(engine: Any, intraop: int) -> float:
        with torch_threads(intraop):
            began = time.perf_counter()
            engine.load_weights({})
            tokens = sum(len(each.tokens) for each in draw_all(engine, wanted, prompts))
            seconds = time.perf_counter() - began
        if tokens != draws * NEW_TOKENS:
            raise RuntimeError(f"{tokens} tokens were drawn, not {draws * NEW_TOKENS}")
        return seconds

    ours = partial(seconds, engine, threads)
    return (
        in_turns(ours, [partial(seconds, *rival) for rival in rivals], pairs, title),
        in_turns(
            ours, [lambda: limit(model, draws) / (os.cpu_count() or 1)], pairs, f"{title}, limit"
        ),
    )


@torch.inference_mode()
def limit(model: PreTrainedModel, draws: int, rows: int = 256) -> float:
    """Seconds of one core for what cannot be done without, at so many rows a step."""
    config = model.config
    head = config.hidden_size // config.num_attention_heads
    numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * head
    kept = torch.randn(rows, PROMPT // DRAWS + NEW_TOKENS // 2, numbers)
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    inputs = [torch.randn(rows, module.in_features) for module in linear]

    def step() -> float:
        began = time.perf_counter()
        for module, rows_in in zip(linear, inputs, strict=True):
            module(rows_in)
        kept.sum()
        return time.perf_counter() - began

    with torch_threads(1):
        return float(np.median([step() for _ in range(5)])) * NEW_TOKENS * draws / rows


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Have torch take so many threads for an operation, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def make_ours(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, new_tokens: int, batch_size: int
) -> TransformersEngine:
    """Make the built-in engine, with one thread where it is tried."""
    with torch_threads(1):
        if reason := unfit_reason(model):
            raise RuntimeError(f"{type(model).__name__} does not fit into slots: {reason}")
        return TransformersEngine(model, tokenizer, new_tokens, batch_size=batch_size)


def shipped(pairs: int, quick: bool) -> dict[str, Figure]:
    """Compare on the shipped model."""
    model, tokenizer = load_model(ModelSettings(path=BUILT_IN, device="cpu"))
    draws = 256 if quick else 1024
    ratio, of_limit = against_generate(model, tokenizer, draws, pairs, "shipped model", 1)
    return {"generate_ratio": ratio, "limit_ratio": of_limit}


def random_25m(pairs: int, quick: bool) -> dict[str, Figure]:
    """Compare on a random model of 25 M parameters."""
    _, tokenizer = load_model(ModelSettings(path=BUILT_IN, device="cpu"))
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=8192,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=7,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config).eval()
    draws = 64 if quick else 256
    ratio, of_limit = against_generate(
        model, tokenizer, draws, pairs, "25 M parameters", THREADS[-1]
    )
    return {"generate_ratio_25m": ratio, "limit_ratio_25m": of_limit}


def roll_out_sums(
    engine: Any, tokenizer: PreTrainedTokenizerBase, count: int, schedule: Any, seed: int = 0
) -> tuple[RolloutCost, int]:
    """Roll out so many problems of the built-in task; also say how many pools are mixed."""
    problems = make_running_sums(count, seed=0)
    prompts = encode_prompts(problems, tokenizer, LONGEST_PROMPT).token_ids
    answers = {problem.key: problem.answer for problem in problems}
    session = rw.RolloutSession(prompts, rw.Balanced(2, 2), schedule, seed)
    cost = run_session(session, engine, prompts, grade_with(ExactGrader(), answers))
    return cost, sum(not pool.zero_variance for pool in session.pools.values())


def sessions(pairs: int, quick: bool) -> dict[str, Figure]:
    """Compare sessions: our engine against `generate`, streamed draws against rounds."""
    model, tokenizer = load_model(ModelSettings(path=BUILT_IN, device="cpu"))
    count = 64 if quick else 256
    ours = make_ours(model, tokenizer, LONGEST, 512)
    rivals = [
        (GenerateEngine(model, tokenizer, LONGEST, size), threads)
        for size in (128, 512)
        for threads in THREADS
    ]

    def cost(engine: Any, threads: int, schedule: Any) -> RolloutCost:
        with torch_threads(threads):
            engine.load_weights({})
            return roll_out_sums(engine, tokenizer, count, schedule)[0]

    def seconds(engine: Any, threads: int, schedule: Any) -> Callable[[], float]:
        return lambda: cost(engine, threads, schedule).sampling

    tokens = cost(ours, 1, STREAMED).tokens / cost(ours, 1, ROUNDS).tokens
    ours_streamed = seconds(ours, 1, STREAMED)
    return {
        "mixed_lengths_ratio": in_turns(
            ours_streamed, [seconds(*rival, STREAMED) for rival in rivals], pairs, "mixed lengths"
        ),
        "streamed_time_ratio": in_turns(
            ours_streamed, [seconds(ours, 1, ROUNDS)], pairs, "streamed"
        ),
        "streamed_token_ratio": {"value": tokens},
    }


def vllm_sessions(pairs: int, quick: bool) -> dict[str, Figure]:
    """Compare streamed draws with rounds on vLLM, its slots taken many times over and to spare."""
    if find_spec("vllm") is None:
        Console(stderr=True).print("The part vllm is left out: vLLM is not installed.")
        return {}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    _, tokenizer = load_model(ModelSettings(path=BUILT_IN, device="cpu"))
    settings = VLLMSettings(dtype="float32", enforce_eager=True)
    context, end = LONGEST_PROMPT + LONGEST, {int(tokenizer.eos_token_id)}
    path, figures = model_path(BUILT_IN), {}
    with VLLMEngine(path, tokenizer, end, context, LONGEST, slots=256, settings=settings) as engine:
        for name, count in ({"_spare": 32} if quick else {"": 256, "_spare": 32}).items():
            figures |= streamed_on_vllm(engine, count, pairs, name)
    return figures


def streamed_on_vllm(engine: VLLMEngine, count: int, pairs: int, name: str) -> dict[str, Figure]:
    """Ratios of rounds' time to streamed and of streamed tokens to rounds'; a pair, a seed."""
    tokens, mixed = list[int](), list[int]()

    def seconds(schedule: Any) -> float:
        pair = len(tokens) // 2
        cost, pools = roll_out_sums(engine, engine.tokenizer, count, schedule, pair)
        tokens.append(cost.tokens)
        mixed.append(pools)
        return cost.sampling

    title = f"streamed on vLLM, {count} prompts"
    time_ratio = in_turns(partial(seconds, STREAMED), [partial(seconds, ROUNDS)], pairs, title)
    rounds, streamed = slice(2, None, 2), slice(3, None, 2)  # the first two only warm up
    Console(stderr=True).print(
        f"{title}: mixed {mixed[streamed]}, in rounds {mixed[rounds]}; "
        f"tokens {tokens[streamed]}, in rounds {tokens[rounds]}"
    )
    return {
        f"vllm_streamed_time_ratio{name}": time_ratio,
        f"vllm_streamed_token_ratio{name}": quantiles(np.divide(tokens[streamed], tokens[rounds])),
    }


PARTS = {"shipped": shipped, "25m": random_25m, "sessions": sessions, "vllm": vllm_sessions}


if __name__ == "__main__":
    main()
