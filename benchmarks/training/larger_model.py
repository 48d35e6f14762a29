"""GRPO against single responses at equal seconds, with a model a hundred times larger, on a GPU.

A random Qwen2 of 34 M parameters learns running sums from the noisy demonstrations that the
built-in model was made of (`scripts/make_base_model.py`). `rollwise compare` then trains it by both
methods, each at its best of three learning rates, for as many seconds, with three seeds. Repeat the
command to resume: the model and all runs that are done are kept in the folder.

    python benchmarks/training/larger_model.py [--output FOLDER] [--seconds 300] [--quick]

`--quick` shows on a CPU that it runs: a tiny model, seconds of training, one seed.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
sys.path.append(str(Path(__file__).parents[1]))

import make_base_model
from measuring import arguments

METHODS = """\
seconds = {seconds}
seeds = {seeds}
baseline = "GRPO n=4"

[choose]
"learner.learning_rate" = {rates}

[choosing]
seeds = {choosing}
share = 0.5

[base]
model = {{path = "{model}"}}
engine = {{max_new_tokens = 48, batch_size = 512}}
step = {{normalize_gradients = true}}
learner = {{average = "responses", mini_batches = 8, warmup_updates = 10, max_grad_norm = 1.0}}
evaluation = {{samples = 4, every = {every}}}
records = {{prompts_per_step = 0}}
checkpoint = {{every = 0}}

[methods."GRPO n=4"]
method = "grpo"

[methods."single responses"]
method = "single"
prompts = {{type = "worth"}}
"""


def make_model(folder: Path, quick: bool) -> None:
    """Train a base model on noisy demonstrations; 34 M parameters unless `quick`."""
    tokenizer = make_base_model.make_tokenizer()
    model = make_base_model.make_model(0, *((32, 2) if quick else (640, 7)))
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    print(f"{model.num_parameters():,} parameters")
    steps, rate = (5, 1e-3) if quick else (1600, 5e-4)
    rng = np.random.default_rng(0)
    make_base_model.learn(model, tokenizer, make_base_model.demonstrate, steps, rng, rate)
    make_base_model.save(model, tokenizer, folder)


def main() -> None:
    """Make the model, unless it is there, and compare."""
    options = {"output": Path("runs/larger-model"), "seconds": 300.0}
    given = arguments(__doc__, "a tiny model, one seed, seconds", **options).parse_args()
    model, methods = given.output / "model", given.output / "methods.toml"
    if not (model / "tokenizer.json").exists():
        make_model(model, given.quick)
    methods.write_text(
        METHODS.format(
            seconds=2.0 if given.quick else given.seconds,
            seeds=1 if given.quick else 3,
            choosing=1 if given.quick else 2,
            rates="[1e-4]" if given.quick else "[2e-5, 5e-5, 1e-4]",
            every=2 if given.quick else 20,
            model=model.as_posix(),
        )
    )
    command = [sys.executable, "-m", "rollwise", "compare", str(methods)]
    command += ["--output", str(given.output / "comparison"), "--workers", "1"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
