"""Everything that is only known of a GPU, in one command of a few minutes, without a network.

Bring: this repository with `tests/`, and an environment with a build of torch for CUDA,
`.[train,lora,vllm]`, pytest and hypothesis; without vLLM its parts are left out. Models are random
and are made on the spot. Each part runs in a process of its own, so that a failure, or memory that
is not given back, is its own.

  tests      the tests marked `gpu`
  attention  packed rows: the largest difference between the attention in use (on a GPU torch's
             kernel for segments) and a block mask, over the largest value; seconds of the second
             over those of the first, forward and backward
  packing    seconds of learning padded over packed, responses of log-normal length (median 600
             tokens, sigma 0.9, cut at 4,096)
  logits     a head of 152,000 words, forward and backward, all tokens over a chunk at a time: peak
             memory (GPU only), seconds
  decoding   tokens a second of the built-in engine and, where it is installed, of vLLM, over those
             of `generate`: 64 responses of 1,024 tokens
  handing    vLLM only: seconds until it has new weights, all of them and with adapters merged in
  sleep      vLLM only: share of its memory that it frees while it sleeps, and seconds to sleep, and
             to wake up with new weights

    python benchmarks/speed/gpu.py [--device cpu] [--quick] [--part NAME]...

Prints the kind of the device, a row for each figure, and a line of JSON. The exit code is 1 if a
part failed. `--device cpu --quick` shows that it runs; its figures say nothing of a GPU.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rollwise.config import LearnerSettings
from rollwise.engines import Engine
from rollwise.engines.attention import LayerInputs
from rollwise.engines.settings import VLLMSettings
from rollwise.engines.transformers import TransformersEngine
from rollwise.models.loading import in_bfloat16, merged_weights, model_path
from rollwise.sampling import Draw
from rollwise.step import Example, Response
from rollwise.training.forward import token_logprobs
from rollwise.training.learner import Learner
from rollwise.training.packing import Segments

sys.path.append(str(Path(__file__).parents[1]))

from measuring import Figure, arguments, draw_all, report

Figures = dict[str, float]

END = 1
SIZES = {  # hidden size, inner size, layers, heads, words
    "tiny": (64, 128, 2, 2, 512),
    "0.1B": (512, 1536, 8, 8, 152_000),
    "0.5B": (896, 4864, 24, 14, 152_000),
    "1.5B": (1536, 8960, 28, 12, 152_000),
}


def config_of(size: str) -> Qwen2Config:
    """Return the configuration of a model like Qwen2."""
    hidden, inner, layers, heads, words = SIZES[size]
    return Qwen2Config(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=END,
        bos_token_id=None,
    )


def make_model(size: str, device: str) -> PreTrainedModel:
    """Make a random model on the device."""
    torch.manual_seed(0)
    with torch.device(device):
        return Qwen2ForCausalLM(config_of(size)).eval()


def seconds_of(device: str, run: Callable[[], object], times: int = 3) -> float:
    """Return the median seconds of a call, after one that warms up."""
    found = []
    for _ in range(times + 1):
        began = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return float(np.median(found[1:]))


def make_examples(lengths: Sequence[int], prompt: int, words: int) -> list[Example]:
    """Make responses of random tokens."""
    rng = np.random.default_rng(0)
    return [
        Example(
            rng.integers(2, words, prompt).tolist(),
            Response(rng.integers(2, words, length).tolist(), np.full(length, -3, np.float32)),
            float(rng.choice([-1.0, 1.0])),
        )
        for length in lengths
    ]


def tests(device: str, quick: bool) -> Figures:
    """Run the tests that need a GPU."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    paths = [str(root / "tests/test_gpu.py")]
    done = subprocess.run([*command, *paths], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    print(done.stdout[-2000:], file=sys.stderr)
    passed = re.search(r"(\d+) passed", done.stdout)
    return {"passed": float(passed[1]) if passed else 0.0}


def attention(device: str, quick: bool) -> Figures:
    """Compare the attention of packed rows with a block mask."""
    heads, size = (2, 32) if quick else (12, 128)
    lengths = (5, 40, 1, 83) if quick else (100, 3000, 1, 700, 4000, 391)
    total, dtype = sum(lengths), torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    sets = [
        torch.randn(1, count, total, size, device=device, dtype=dtype, requires_grad=True)
        for count in (heads, 2, 2)
    ]
    segments = Segments(lengths, torch.device(device))
    owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(device)
    mask = (owner[:, None] == owner) & torch.ones(
        total, total, dtype=torch.bool, device=device
    ).tril()
    upstream = torch.randn(1, heads, total, size, device=device, dtype=dtype)

    def packed() -> list[Tensor]:
        found = segments.attend(LayerInputs(0, *sets, scale=size**-0.5, window=None))
        return [found, *torch.autograd.grad(found, sets, upstream)]

    def masked() -> list[Tensor]:
        found = torch.nn.functional.scaled_dot_product_attention(
            *sets, attn_mask=mask, enable_gqa=True
        )
        return [found, *torch.autograd.grad(found, sets, upstream)]

    differences = [
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(packed(), masked(), strict=True)
    ]
    seconds = [seconds_of(device, run) for run in (masked, packed)]
    return {
        "difference": differences[0],
        "difference_of_gradients": max(differences[1:]),
        "seconds_ratio": seconds[0] / seconds[1],
    }


def packing(device: str, quick: bool) -> Figures:
    """Learn from the same responses padded and packed."""
    model = make_model("tiny" if quick else "0.5B", device)
    model.gradient_checkpointing_enable()
    longest, count = (256, 8) if quick else (4096, 64)
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(longest / 7), 0.9, count), 2, longest).astype(int)
    examples = make_examples(lengths.tolist(), 24 if quick else 150, model.config.vocab_size)
    seconds = []
    for packed in (False, True):
        settings = LearnerSettings(
            learning_rate=1e-9, packed=packed, micro_batch_tokens=4 * longest
        )
        learner = Learner(model, settings, threads=1)
        seconds.append(seconds_of(device, lambda own=learner: own.learn(examples), 1 + 2 * quick))
    tokens = int(lengths.sum())
    return {"seconds_ratio": seconds[0] / seconds[1], "packed_tokens_s": tokens / seconds[1]}


def logits(device: str, quick: bool) -> Figures:
    """Run a head for all tokens at once, and for a chunk at a time."""
    words, hidden, tokens = (4_000, 32, 512) if quick else (152_000, 1536, 8192)
    torch.manual_seed(0)
    head = torch.nn.Linear(hidden, words, bias=False, device=device)
    states = torch.randn(tokens, hidden, device=device, requires_grad=True)
    chosen = torch.randint(words, (tokens,), device=device)
    peaks, seconds = [], []
    for chunk in (tokens, tokens // 16):

        def run(size: int = chunk) -> None:
            token_logprobs(head, states, chosen, 1.0, False, size)[0].sum().backward()

        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if device == "cuda" else 0
        seconds.append(seconds_of(device, run))
        if device == "cuda":
            peaks.append(torch.cuda.max_memory_allocated() - before)
    memory = {"memory_ratio": peaks[0] / peaks[1]} if peaks else {}
    return {"seconds_ratio": seconds[0] / seconds[1], **memory}


def tokens_a_second(engine: Engine, prompts: dict[str, list[int]], count: int) -> float:
    """Draw responses to prompts, the second time against the clock."""
    for turn in range(2):
        draws = [Draw(key, i, 1000 * turn + i) for key in prompts for i in range(count)]
        began = time.perf_counter()
        tokens = sum(len(response.tokens) for response in draw_all(engine, draws, prompts))
        seconds = time.perf_counter() - began
    return tokens / seconds


def decoding(device: str, quick: bool) -> Figures:
    """Compare engines with `generate` of transformers."""
    size, longest, count = ("tiny", 16, 4) if quick else ("0.5B", 1024, 16)
    model = make_model(size, device)
    if device == "cuda":
        in_bfloat16(model)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))
    rng = np.random.default_rng(0)
    prompts = {str(i): rng.integers(2, 17, 24).tolist() for i in range(4)}
    rows = torch.tensor([p for p in prompts.values() for _ in range(count)], device=device)

    def generate() -> None:
        mask = torch.ones_like(rows)
        model.generate(rows, attention_mask=mask, do_sample=True, max_new_tokens=longest)

    plain = rows.shape[0] * longest / seconds_of(device, generate, 1)
    own = TransformersEngine(model, tokenizer, longest, 1.0, len(rows))
    found = {"built_in_ratio": tokens_a_second(own, prompts, count) / plain}
    found["generate_tokens_s"] = plain
    if find_spec("vllm") is not None and not quick:
        del own
        with tempfile.TemporaryDirectory() as folder, vllm_of(model, tokenizer, folder) as engine:
            found["vllm_ratio"] = tokens_a_second(engine, prompts, count) / plain
    return found


def vllm_of(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: str, **settings: object
) -> Engine:
    """Start vLLM with a model."""
    from rollwise.engines.vllm import VLLMEngine

    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    options = VLLMSettings(gpu_memory_utilization=0.3, **settings)
    return VLLMEngine(folder, tokenizer, {END}, 2048, 1024, 1.0, 64, options)


def handing(device: str, quick: bool) -> Figures:
    """Hand weights to vLLM."""
    if device == "cpu" or find_spec("vllm") is None:
        return {}
    model = make_model("0.1B" if quick else "1.5B", device)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))
    found: Figures = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        vllm_of(model, tokenizer, folder, enforce_eager=True) as engine,
    ):
        kinds = {"all": model.state_dict()}
        if find_spec("peft") is not None:
            from peft import LoraConfig, get_peft_model

            adapters = LoraConfig(r=32, target_modules="all-linear", task_type="CAUSAL_LM")
            kinds["merged"] = merged_weights(get_peft_model(model, adapters))
        for name, weights in kinds.items():
            run = partial(engine.load_weights, weights)
            found[f"{name}_seconds"] = seconds_of(device, run)
    return found


def sleep(device: str, quick: bool) -> Figures:
    """Let vLLM sleep and wake up."""
    if device == "cpu" or find_spec("vllm") is None:
        return {}
    model = in_bfloat16(make_model("0.1B" if quick else "1.5B", device))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))
    before = torch.cuda.mem_get_info()[0]
    with (
        tempfile.TemporaryDirectory() as folder,
        vllm_of(model, tokenizer, folder, sleep_level=2, enforce_eager=quick) as engine,
    ):
        tokens_a_second(engine, {"a": [3, 4, 5]}, 4)
        taken = before - torch.cuda.mem_get_info()[0]
        began = time.perf_counter()
        engine.sleep()
        slept = time.perf_counter()
        left = before - torch.cuda.mem_get_info()[0]
        engine.load_weights(model.state_dict())
        woke = time.perf_counter()
        tokens_a_second(engine, {"a": [3, 4, 5]}, 4)
    return {
        "freed_share": 1 - left / taken,
        "left_gb": left / 1e9,
        "seconds_to_sleep": slept - began,
        "seconds_to_wake": woke - slept,
    }


PARTS = {
    part.__name__: part for part in (tests, attention, packing, logits, decoding, handing, sleep)
}


def in_a_process(name: str, device: str, quick: bool) -> Figures:
    """Run a part in a process of its own.

    Raises:
        RuntimeError: It failed; has the end of what it printed.
    """
    command = [sys.executable, __file__, "--here", "--part", name, "--device", device]
    command += ["--quick"] * quick
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-1500:])
    figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def main() -> int:
    """Run the parts, print a table and a line of JSON; returns the exit code."""
    parser = arguments(__doc__, "tiny sizes")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one; repeatable")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here; --device cpu --quick shows that it runs")
    parts = given.part or list(PARTS)
    if given.here:
        print(json.dumps(PARTS[parts[0]](given.device, given.quick)))
        return 0
    kind = torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
    found: dict[str, Figure] = {}
    failed = []
    for name in parts:
        began = time.perf_counter()
        try:
            figures = in_a_process(name, given.device, given.quick)
        except RuntimeError as error:
            failed.append(name)
            print(f"{name} failed:\n{error}", file=sys.stderr)
            continue
        found |= {f"{name}_{figure}": {"value": value} for figure, value in figures.items()}
        print(f"{name}: {time.perf_counter() - began:.0f} s {figures}", file=sys.stderr)
    report(f"{kind}; failed: {', '.join(failed) or 'nothing'}", found, ".4g")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
