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

    python benchmarks/engines.py [--quick] [--pairs N] [--profile] [--part NAME]
"""

import argparse
import cProfile
import json
import os
import pstats
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

import rollwise as rw
from rollwise.config import BUILT_IN, ModelSettings
from rollwise.engines import Completion
from rollwise.engines.settings import VLLMSettings
from rollwise.engines.transformers import TransformersEngine, unfit_reason
from rollwise.engines.vllm import VLLMEngine
from rollwise.grading import ExactGrader
from rollwise.models.encoding import encode_prompts
from rollwise.models.loading import load_model, model_path
from rollwise.sampling import Draw
from rollwise.sampling.draws import draw_seed
from rollwise.step.outcomes import Prompts
from rollwise.step.session import RolloutCost, grade_with, run_session
from rollwise.tasks import make_running_sums

PROMPT = 20
NEW_TOKENS = 40
DRAWS = 8  # of a prompt
LONGEST = 48
LONGEST_PROMPT = 64
STREAMED, ROUNDS = rw.Streamed(32), rw.Rounds(8, 4)
THREADS = sorted({1, torch.get_num_threads()})
Estimate = dict[str, float]


@dataclass
class GenerateEngine:
    """`generate` as an engine: a batch at a time, each drawn until its longest response ends.

    It draws by torch's random numbers, not by those of the draws, which costs it nothing.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    max_new_tokens: int
    batch_size: int
    waiting: dict[Draw, Sequence[int]] = field(default_factory=dict)

    @property
    def free_slots(self) -> int:
        """Rows of the next batch that are not taken yet."""
        return max(0, self.batch_size - len(self.waiting))

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Put draws in line."""
        self.waiting |= {draw: prompts[draw.key] for draw in draws}

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws that have not begun."""
        for draw in draws:
            self.waiting.pop(draw, None)
        return 0

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Do nothing: the weights are shared."""

    @torch.inference_mode()
    def wait(self) -> list[Completion]:
        """Draw the next batch; prompts of similar length go together."""
        order = sorted(self.waiting, key=lambda draw: len(self.waiting[draw]))
        batch = {draw: self.waiting.pop(draw) for draw in order[: self.batch_size]}
        if not batch:
            return []
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
        unknown = np.zeros(0, dtype=np.float32)
        rows = zip(batch, output.tolist(), lengths, texts, strict=True)
        return [
            Completion(draw, tokens[:length], unknown, text, length == self.max_new_tokens)
            for draw, tokens, length, text in rows
        ]


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one pair, fewer draws")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="what remains of our time")
    parser.add_argument("--part", choices=list(PARTS), action="append")
    arguments = parser.parse_args()
    pairs = 1 if arguments.quick else arguments.pairs
    if arguments.profile:
        profile()
        return
    figures: dict[str, Estimate] = {}
    for name in arguments.part or PARTS:
        figures |= PARTS[name](pairs, arguments.quick)
    table = Table(title=f"{pairs} pairs; above 1: ours is faster")
    for column in ("", "ratio", "quartiles"):
        table.add_column(column)
    for name, f in figures.items():
        table.add_row(name, f"{f['value']:.2f}", f"{f['low']:.2f} to {f['high']:.2f}")
    Console().print(table)
    print(json.dumps(figures))


def in_turns(
    ours: Callable[[], float], rivals: Sequence[Callable[[], float]], pairs: int, title: str
) -> Estimate:
    """Ratio of the best rival's figure to ours, by pairs that take turns; all run once before."""
    ours()
    rival = rivals[int(np.argmin([run() for run in rivals]))] if len(rivals) > 1 else rivals[0]
    ratios = [rival() / ours() for _ in track(range(pairs), title, console=Console(stderr=True))]
    return estimate(ratios)


def estimate(ratios: Sequence[float]) -> Estimate:
    """Median and quartiles."""
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75]).tolist()
    return {"value": middle, "low": low, "high": high}


def against_generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    draws: int,
    pairs: int,
    title: str,
) -> tuple[Estimate, Estimate]:
    """Ratios of times for responses of 40 tokens, 8 to a prompt of 20: the rival, the limit."""
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
            engine.submit(wanted, prompts)
            tokens = sum(len(c.tokens) for done in iter(engine.wait, []) for c in done)
            seconds = time.perf_counter() - began
        if tokens != draws * NEW_TOKENS:
            raise RuntimeError(f"{tokens} tokens were drawn, not {draws * NEW_TOKENS}")
        return seconds

    ours = partial(seconds, engine, 1)
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
    """Make the built-in engine as `rollwise train` does on a CPU: a process for each core."""
    with torch_threads(1):
        if reason := unfit_reason(model):
            raise RuntimeError(f"{type(model).__name__} does not fit into slots: {reason}")
        return TransformersEngine(model, tokenizer, new_tokens, batch_size=batch_size)


def shipped(pairs: int, quick: bool) -> dict[str, Estimate]:
    """Compare on the shipped model."""
    model, tokenizer = load_model(ModelSettings(path=BUILT_IN, device="cpu"))
    draws = 256 if quick else 1024
    ratio, of_limit = against_generate(model, tokenizer, draws, pairs, "shipped model")
    return {"generate_ratio": ratio, "limit_ratio": of_limit}


def random_25m(pairs: int, quick: bool) -> dict[str, Estimate]:
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
    ratio, of_limit = against_generate(model, tokenizer, draws, pairs, "25 M parameters")
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


def sessions(pairs: int, quick: bool) -> dict[str, Estimate]:
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
        "streamed_token_ratio": {"value": tokens, "low": tokens, "high": tokens},
    }


def vllm_sessions(pairs: int, quick: bool) -> dict[str, Estimate]:
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


def streamed_on_vllm(engine: VLLMEngine, count: int, pairs: int, name: str) -> dict[str, Estimate]:
    """Ratios of rounds' time to streamed and of streamed tokens to rounds'; a pair, a seed."""
    tokens, mixed = list[int](), list[int]()

    def seconds(schedule: Any) -> float:
        pair = (len(tokens) + 1) // 2
        cost, pools = roll_out_sums(engine, engine.tokenizer, count, schedule, pair)
        tokens.append(cost.tokens)
        mixed.append(pools)
        return cost.sampling

    title = f"streamed on vLLM, {count} prompts"
    time_ratio = in_turns(partial(seconds, STREAMED), [partial(seconds, ROUNDS)], pairs, title)
    rounds, streamed = slice(1, None, 2), slice(2, None, 2)  # the first one only warms up
    Console(stderr=True).print(
        f"{title}: mixed {mixed[streamed]}, in rounds {mixed[rounds]}; "
        f"tokens {tokens[streamed]}, in rounds {tokens[rounds]}"
    )
    return {
        f"vllm_streamed_time_ratio{name}": time_ratio,
        f"vllm_streamed_token_ratio{name}": estimate(
            np.divide(tokens[streamed], tokens[rounds]).tolist()
        ),
    }


def profile() -> None:
    """Print where the time of 1,024 draws on the shipped model goes, in one process."""
    model, tokenizer = load_model(ModelSettings(path=BUILT_IN, device="cpu"))
    rng = random.Random(0)
    prompts = {key: rng.choices(range(2, 17), k=PROMPT) for key in range(1024 // DRAWS)}
    draws = [Draw(key, i, draw_seed(0, 0, key, i)) for key in prompts for i in range(DRAWS)]
    with torch_threads(1):
        engine = TransformersEngine(model, tokenizer, NEW_TOKENS, batch_size=512)
        profiler = cProfile.Profile()
        for _ in range(2):  # the first one reserves memory
            engine.load_weights({})
            engine.submit(draws, prompts)
            profiler = cProfile.Profile()
            profiler.runcall(list, iter(engine.wait, []))
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


PARTS = {"shipped": shipped, "25m": random_25m, "sessions": sessions, "vllm": vllm_sessions}


if __name__ == "__main__":
    main()
