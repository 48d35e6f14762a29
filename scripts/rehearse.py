"""Rehearse training at real size, on a CPU: random weights in the shape of Qwen2.5-0.5B.

A model with 151,936 words takes two steps by `rollwise train`, all weights and adapters, with the
built-in engine and, where it is installed, vLLM. Then the same run is killed after its first step
and resumed, and must end with the same weights. Nothing is downloaded.

    python scripts/rehearse.py                  # an hour or more of two cores, 12 GB of memory
    python scripts/rehearse.py --layers 1 --hidden 64 --engine transformers      # one minute
    python scripts/rehearse.py --recipes        # each of examples/recipes/ on a shrunken model
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from rollwise.records import flatten

RECIPES = Path(__file__).parents[1] / "examples/recipes"
WORDS, END = 151_936, "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GRADER = '''"""A reward that random responses get about half of the time."""


def odd(response: str, answer: str) -> float:
    return float(sum(response.encode()) % 2)
'''
COMMON = {
    "method": "single",
    "steps": 2,
    "prompts.batch_size": 16,
    "engine.max_new_tokens": 128,
    "data.max_prompt_tokens": 64,
    "evaluation.problems": 2,
    "evaluation.samples": 1,
    "checkpoint.every": 1,
    "grading.type": "function",
    "grading.function": "grader:odd",
    "learner.mini_batches": 2,
}


def make_tokenizer(words: int) -> PreTrainedTokenizerFast:
    """Make a tokenizer of bytes, and as many longer words as the model has beside them."""
    special = ["<|endoftext|>", "<|im_start|>", END]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    known = [*alphabet, *special]
    known += [f"w{number}" for number in range(words - len(known))]
    inner = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(known)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, pad_token=special[0])
    made.chat_template = TEMPLATE
    return made


def make_model(folder: Path, layers: int, hidden: int, words: int = WORDS) -> Path:
    """Save random weights in the shape of Qwen2.5-0.5B (24 layers of 896), or a smaller one."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer(words)
    heads = max(2, hidden // 64)
    config = Qwen2Config(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=hidden * 4864 // 896 // 8 * 8,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        rope_theta=1e6,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_problems(folder: Path) -> None:
    """Write 64 problems, as many programs in KodCode's columns, and a grader."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = range(300, 364)
    asked = [{"question": f"What is {i} + 1?", "answer": str(i + 1)} for i in numbers]
    test = "from solution import add\n\ndef test_add():\n    assert add({}) == {}"
    programs = [{"question": f"Add 1 to {i}.", "test": test.format(i, i + 1)} for i in numbers]
    for name, rows in (("problems", asked), ("programs", programs)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "grader.py").write_text(GRADER)


def command_of(settings: Mapping[str, Any], folder: Path, run: str) -> list[str]:
    """Return the command of a run in `folder`."""
    given = [f"--{name}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", "rollwise", "train", "--output", str(folder / run), *given]


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a run's last checkpoint."""
    last = sorted((run / "checkpoints").iterdir())[-1]
    files = sorted((last / "model").glob("*.safetensors"))
    return {name: value for file in files for name, value in load_file(file).items()}


def rehearse(settings: Mapping[str, Any], folder: Path, name: str) -> dict[str, Any]:
    """Run twice, once killed after a step and resumed; returns figures of the whole run."""
    began = time.perf_counter()
    subprocess.run(command_of(settings, folder, name), cwd=folder, check=True)
    seconds = time.perf_counter() - began
    command, killed = command_of(settings, folder, f"{name}-killed"), folder / f"{name}-killed"
    with subprocess.Popen(command, cwd=folder, start_new_session=True) as process:
        while not (killed / "checkpoints/step-000001/checksums.txt").exists():
            if process.poll() is not None:
                raise SystemExit("the run ended before it could be killed")
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    subprocess.run(command, cwd=folder, check=True)
    whole, resumed = weights_of(folder / name), weights_of(killed)
    differing = [name for name in whole if not torch.equal(whole[name], resumed[name])]
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").open()]
    updates = sum(row["skipped_updates"] == 0 and row["grad_norm"] > 0 for row in rows[1:])
    if differing or updates < len(rows) - 1:
        raise SystemExit(f"{len(differing)} tensors differ; {updates} steps made updates")
    gap = max(row["sampler_gap"] for row in rows[1:])
    return {"seconds": round(seconds), "steps": len(rows) - 1, "largest gap": gap}


def rehearse_recipe(recipe: Path, model: Path, folder: Path) -> dict[str, Any]:
    """Take two steps by a recipe, with a small model, local problems and short responses.

    The built-in engine takes vLLM's place, and the judge, which needs a server, that of a function.
    """
    given = tomllib.loads(recipe.read_text(encoding="utf-8"))
    kept = ("temperature", "batch_size")
    given["engine"] = {name: given["engine"][name] for name in kept} | {"max_new_tokens": 16}
    given["model"]["path"] = str(model)
    code = given["grading"]["type"] == "code"
    of_hub = ("train", "heldout", "split", "heldout_split", "columns")
    given["data"] = {name: v for name, v in given["data"].items() if name not in of_hub}
    given["data"]["train"] = str(folder / f"{'programs' if code else 'problems'}.jsonl")
    if ":" in given["grading"]["type"]:
        given["grading"] = {"type": "function", "function": "grader:odd"}
    given["evaluation"] |= {"problems": 4, "samples": 1}
    given["prompts"]["batch_size"] = 32
    given["steps"] = 2
    settings = flatten(given, ".")
    command = command_of(
        {n: json.dumps(v) if not isinstance(v, str) else v for n, v in settings.items()},
        folder,
        recipe.stem,
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(RECIPES), os.environ.get("PYTHONPATH", "")])
    }
    subprocess.run(command, cwd=folder, env=environment, check=True)
    rows = [json.loads(line) for line in (folder / recipe.stem / "metrics.jsonl").open()]
    return {"steps": len(rows) - 1, "largest gap": max(row["sampler_gap"] for row in rows[1:])}


def variants(engines: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the settings of each rehearsal."""
    adapters = {"model.lora_rank": 8, "learner.learning_rate": 1e-4}
    own = {"learner.learning_rate": 1e-6, "engine.temperature": 1.0}
    for engine, (weights, settings) in product(engines, (("all", {}), ("lora", adapters))):
        extra = {"engine.type": engine}
        if engine == "vllm":
            extra |= {"engine.dtype": "float32", "engine.enforce_eager": "true"}
        yield f"{engine}-{weights}", COMMON | own | extra | settings


def main() -> None:
    """Rehearse, and print a line of JSON for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=896)
    parser.add_argument("--engine", action="append", choices=("transformers", "vllm"))
    parser.add_argument("--recipes", action="store_true", help="rehearse the recipes instead")
    parser.add_argument("--output", type=Path, help="keep models and runs here")
    options = parser.parse_args()
    here = ["transformers", *(["vllm"] if importlib.util.find_spec("vllm") else [])]
    with tempfile.TemporaryDirectory() as temporary:
        root = (options.output or Path(temporary)).resolve()
        write_problems(root)
        if options.recipes:
            model = make_model(root / "model", 1, 64, words=512)
            for recipe in sorted(RECIPES.glob("*.toml")):
                if recipe.stem != "plan":
                    found = rehearse_recipe(recipe, model, root)
                    print(json.dumps({"recipe": recipe.stem, **found}), flush=True)
            return
        model = make_model(root / "model", options.layers, options.hidden)
        for name, settings in variants(options.engine or here):
            of_run = {"model.path": model, "data.train": root / "problems.jsonl", **settings}
            print(json.dumps({"run": name, **rehearse(of_run, root, name)}), flush=True)


if __name__ == "__main__":
    main()
