"""How well the norm of a response's gradient can be estimated without a backward pass.

For 384 responses of a model, the norm of ∇ Σ_t log π_t over all weights is compared with estimates
that an engine or one forward pass can give:

    improbability    √Σ(1 − π)², what `step.normalize_gradients` uses: needs log-probabilities alone
    sum              Σ(1 − π): the same
    surprisal        −Σ log π: the same
    logits           √Σ‖e − π‖², the exact norm in the logits: needs all probabilities
    entropy          Σ H(π): the same
    last layer       ‖Σ (e − π)·hᵀ‖, the exact norm in its weights: needs its hidden state too
    length           T

    python benchmarks/study/gradient_norms.py [MODEL ...]

A model is a folder or a run of `rollwise train` (by default the built-in model before and after
training for 0.2 M tokens on sums of 7 to 10 terms); `MODEL=problems.parquet` draws from problems of
its own. *Correlation* is that of the logarithms; *found* is the share of the tenth with the largest
gradients that is among the tenth with the largest estimates; *bounded* is the largest norm, in
medians, that is left once all estimates above the median are scaled down to it (without a bound:
`none`). `--figure FILE` draws estimates against norms.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rollwise.cli import main as rollwise
from rollwise.config import ModelSource
from rollwise.models.saved import find_model, load_saved
from rollwise.tasks import make_running_sums, read_problems

sys.path.append(str(Path(__file__).parents[1]))

from figures import COLORS, svg
from measuring import arguments, print_line, print_table

Floats = NDArray[np.float64]
RESPONSES, LONGEST = 384, 48
ESTIMATES = ("improbability", "sum", "surprisal", "logits", "entropy", "last layer", "length")


@torch.no_grad()
def draw(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]
) -> list[tuple[list[int], int]]:
    """Draw a response to each prompt: the tokens of both, and where the response begins."""
    encoded = tokenizer(list(prompts), return_tensors="pt", padding=True)
    tokens = model.generate(**encoded, do_sample=True, top_k=0, max_new_tokens=LONGEST)
    width = encoded["input_ids"].shape[1]
    drawn = []
    for row, mask in zip(tokens.tolist(), encoded["attention_mask"], strict=True):
        prompt, response = row[width - int(mask.sum()) : width], row[width:]
        if tokenizer.eos_token_id in response:
            response = response[: response.index(tokenizer.eos_token_id) + 1]
        drawn.append((prompt + response, len(prompt)))
    return drawn


def measure(model: PreTrainedModel, tokens: Sequence[int], begin: int) -> dict[str, float]:
    """Return the norm of the gradient of a response's log-probability, and every estimate."""
    model.zero_grad()
    ids = torch.tensor([tokens])
    output = model(ids, output_hidden_states=True)
    logits, hidden = output.logits[0, begin - 1 : -1].float(), output.hidden_states[-1][0]
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(1, ids[0, begin:, None])[:, 0]
    chosen.sum().backward()
    squares = [p.grad.square().sum() for p in model.parameters() if p.grad is not None]
    with torch.no_grad():
        probabilities, improbable = logprobs.exp(), -torch.expm1(chosen)
        error = torch.nn.functional.one_hot(ids[0, begin:], logits.shape[1]) - probabilities
        estimates = {
            "improbability": improbable.square().sum().sqrt(),
            "sum": improbable.sum(),
            "surprisal": -chosen.sum(),
            "logits": error.square().sum().sqrt(),
            "entropy": -(probabilities * logprobs).sum(),
            "last layer": (error.T @ hidden[begin - 1 : -1].float()).norm(),
            "length": chosen.new_tensor(float(len(chosen))),
        }
    return {"norm": float(torch.stack(squares).sum().sqrt())} | {
        name: float(value) for name, value in estimates.items()
    }


def figures_of(norms: Floats, estimates: Floats) -> dict[str, float]:
    """Compare estimates with norms: correlation, how many of the largest are found, the bound."""
    kept = (norms > 0) & (estimates > 0)
    tenth = len(norms) // 10
    largest = set(np.argsort(norms)[-tenth:].tolist())
    bounded = norms * np.minimum(1.0, np.median(estimates) / np.maximum(estimates, 1e-12))
    return {
        "correlation": float(np.corrcoef(np.log(norms[kept]), np.log(estimates[kept]))[0, 1]),
        "found": len(largest & set(np.argsort(estimates)[-tenth:].tolist())) / tenth,
        "bounded": float(bounded.max() / np.median(norms)),
    }


def measurements(source: str) -> dict[str, Floats]:
    """Load a model, draw responses, and measure each."""
    path, _, problems = source.partition("=")
    torch.manual_seed(0)
    model, tokenizer = load_saved(ModelSource(path=find_model(path), device="cpu"))
    asked = (
        read_problems(problems).problems
        if problems
        else make_running_sums(RESPONSES, min_terms=7, seed=40_000_000)
    )
    prompts = [problem.messages[-1]["content"] for problem in asked[:RESPONSES]]
    found = [measure(model, *drawn) for drawn in draw(model, tokenizer, prompts)]
    return {name: np.array([each[name] for each in found]) for name in found[0]}


def draw_figure(path: Path, measured: Mapping[str, Mapping[str, Floats]]) -> None:
    """Draw the estimate that gradients are normalized by against norms, a panel for each model."""
    title = "Norms of responses' gradients against their estimates"
    with svg(path, title, (3.6 * len(measured), 3.4)) as figure:
        panels = figure.subplots(1, len(measured), squeeze=False)[0]
        for axes, (name, found) in zip(panels, measured.items(), strict=True):
            norms = found["norm"] / np.median(found["norm"])
            axes.loglog(
                found["improbability"], norms, ".", color=COLORS[1], alpha=0.5, markersize=4
            )
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_minor_formatter(NullFormatter())
            axes.set_title(name)
            axes.set_xlabel("estimate, √Σ(1 − π)²")
        panels[0].set_ylabel("norm of the gradient, in medians")


def main() -> None:
    """Print a table for each model, and one line of JSON."""
    parser = arguments(__doc__, "the model before training alone")
    parser.add_argument("models", nargs="*", help="MODEL or MODEL=problems.parquet")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        sources: dict[str, Any] = {name: name for name in given.models}
        if not sources:
            sources = {"before training": "running-sums"}
            if not given.quick:
                trained = Path(temporary) / "run"
                options = ["--data.min_terms", "7", "--tokens", "200000"]
                if rollwise(["train", *options, "--output", str(trained)]):
                    raise SystemExit(1)
                sources["after 0.2 M tokens"] = str(trained)
        measured = {name: measurements(source) for name, source in sources.items()}
    results = {}
    for name, found in measured.items():
        norms = found["norm"]
        rows = [("none", "", "", f"{norms.max() / np.median(norms):.1f}")]
        for estimate in ESTIMATES:
            each = figures_of(norms, found[estimate])
            rows.append((estimate, *(f"{value:.2f}" for value in each.values())))
            results |= {f"{name}, {estimate}, {k}": {"value": v} for k, v in each.items()}
        print_table(name, ("estimate", "correlation", "found", "bounded"), rows)
    if given.figure:
        draw_figure(given.figure, measured)
    print_line(results)


if __name__ == "__main__":
    main()
