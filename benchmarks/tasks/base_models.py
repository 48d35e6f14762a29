"""Make the base models of the study: for other tasks than sums, and for sums in other sizes.

Each learns noisy demonstrations, as the built-in model did, so that it solves some problems always,
some never and most sometimes. `problem_sets.py` makes those that a set needs; this makes all, or
those that are named, and skips those that are there.

    python benchmarks/tasks/base_models.py [--folder benchmarks/study/problems] [MODEL ...]
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grid_paths
import numpy as np
import string_edits
import torch
from problem_sets import folder_name

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import make_base_model

FOLDER = Path(__file__).parents[1] / "study/problems"


def teach(
    demonstrate: make_base_model.Demonstrate,
    characters: Sequence[str] = make_base_model.CHARACTERS,
    hidden: int = 96,
    layers: int = 3,
    steps: int = 1600,
    **how: Any,
) -> tuple[Any, Any]:
    """Train a new model; return it and its tokenizer."""
    tokenizer = make_base_model.make_tokenizer(characters)
    model = make_base_model.make_model(0, hidden, layers, len(characters))
    rng = np.random.default_rng(0)
    make_base_model.learn(model, tokenizer, demonstrate, steps, rng, **how)
    return model, tokenizer


def sums(noise: float) -> make_base_model.Demonstrate:
    """Return what demonstrates running sums; the noise sets how many the model solves."""
    return partial(make_base_model.demonstrate, noise=noise)


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "string edits": partial(
        teach, string_edits.demonstrate, string_edits.CHARACTERS, steps=1200, batch_size=64
    ),
    "grid paths": partial(
        teach, grid_paths.demonstrate, grid_paths.CHARACTERS, steps=1200, batch_size=64
    ),
    "running sums, 0.1 M": partial(
        teach, sums(0.85), hidden=64, layers=2, steps=2000, sorted_over=8
    ),
    "running sums, 1.3 M": partial(
        teach,
        sums(1.0),
        hidden=192,
        steps=2400,
        learning_rate=1e-3,
        batch_size=64,
        sorted_over=8,
    ),
    "running sums, 5 M": partial(
        teach,
        sums(1.0),
        hidden=320,
        layers=4,
        steps=4000,
        learning_rate=6e-4,
        batch_size=24,
        sorted_over=8,
    ),
}
"""Model -> what makes it and its tokenizer."""


def make(name: str, folder: Path = FOLDER) -> Path:
    """Make a base model in `folder`, unless it is there; return where it is."""
    path = folder / folder_name(name) / "model"
    if not path.exists():
        print(f"{name}: making the base model", flush=True)
        torch.set_num_threads(1)
        began = time.perf_counter()
        model, tokenizer = MODELS[name]()
        unfinished = path.with_name("unfinished-model")
        make_base_model.save(model, tokenizer, unfinished)
        unfinished.rename(path)
        seconds = time.perf_counter() - began
        print(f"{name}: {model.num_parameters():,} parameters, {seconds:.0f} s", flush=True)
    return path


def main() -> None:
    """Make models, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"some of: {'; '.join(MODELS)}")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    if strange := [name for name in given.models if name not in MODELS]:
        parser.error(f"unknown models: {', '.join(strange)}")
    for name in given.models or MODELS:
        print(f"{name}: {make(name, given.folder)}")


if __name__ == "__main__":
    main()
