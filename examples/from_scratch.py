"""Reinforcement learning with single responses, from top to bottom, on two cores in two minutes.

    python examples/from_scratch.py [--steps 50] [--seed 0] [--plot accuracy.png]

A model of 0.33 M parameters that half knows running sums (`7+5-9+3?` is answered `7 12 3 6=6`)
learns from its own responses. All that this takes is here, with torch and transformers, and two
objects of rollwise: a prompt sampler, which chooses the prompts of each step, and its belief, which
says how likely each prompt is to be answered correctly.

GRPO, the usual method, draws several responses to each prompt and compares each with the mean of
its group, so that a prompt whose responses are all correct, or all incorrect, teaches nothing. Here
each prompt gets one response, which is compared with what the belief expected of it; and half of
the prompts are those whose expected pass rate is about one half, where a response teaches most.
There is no group, no division by a standard deviation, no critic and no second model.

What `rollwise train` adds: an engine that refills its rows as responses end, graders for real
answers, checkpoints, exact resuming, records and a report (docs/training.md).
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

import rollwise as rw

MODEL = Path(rw.__file__).parent / "models/running-sums"
NEW_TOKENS = 48

BATCH = 256  # prompts of a step, one response each
UPDATES = 16  # of the weights, a step: each learns from 16 responses
LEARNING_RATE, WARM_UP = 2e-4, 40  # the rate after so many updates
LARGEST_NORM = 0.03  # of an update's gradient
CLIP_LOW, CLIP_HIGH = 0.2, 0.28  # how far a token's probability may move in a step


# Problems ------------------------------------------------------------------------------------


def make_problems(count: int, seed: int, without: set[str] = frozenset()) -> dict[str, str]:
    """Return `count` running sums of 2 to 10 one-digit terms: question -> answer."""
    rng, problems = np.random.default_rng(seed), {}
    while len(problems) < count:
        terms = rng.integers(-9, 10, size=rng.integers(2, 11))
        terms[0] = abs(terms[0])
        question = str(terms[0]) + "".join(f"{term:+d}" for term in terms[1:]) + "?"
        if question not in without:
            problems[question] = str(terms.sum())
    return problems


def reward(response: str, answer: str) -> float:
    """Return 1 if what follows the last `=` is the answer, else 0."""
    return float(response.rpartition("=")[2].strip() == answer)


# Responses -----------------------------------------------------------------------------------


@dataclass
class Batch:
    """Responses to B prompts, each of at most T tokens, as the model takes them.

    Attributes:
        ids: Prompts, padded on the left, and responses, padded on the right, shape (B, P + T).
        real: Which of these are no padding, shape (B, P + T).
        drawn: Which tokens of the responses the model drew, their end included, shape (B, T).
        texts: The responses.
    """

    ids: Tensor
    real: Tensor
    drawn: Tensor
    texts: list[str]

    def rows(self, places: np.ndarray) -> "Batch":
        """Return some of the responses."""
        chosen = torch.from_numpy(places)
        texts = [self.texts[place] for place in places]
        return Batch(self.ids[chosen], self.real[chosen], self.drawn[chosen], texts)


@torch.no_grad()
def draw(model, tokenizer, questions: list[str]) -> Batch:
    """Draw one response to each question, at temperature 1."""
    given = tokenizer(questions, return_tensors="pt", padding=True, padding_side="left")
    width = given.input_ids.shape[1]
    ids = model.generate(**given, do_sample=True, top_k=0, max_new_tokens=NEW_TOKENS)
    responses = ids[:, width:]
    ended = (responses == tokenizer.eos_token_id).int()
    drawn = ended.cumsum(dim=1) - ended == 0  # up to the first end token, which is drawn too
    texts = tokenizer.batch_decode(responses, skip_special_tokens=True)
    return Batch(ids, torch.cat([given.attention_mask.bool(), drawn], dim=1), drawn, texts)


def log_probabilities(model, batch: Batch) -> Tensor:
    """Return log π of each token of the responses, 0 where none was drawn, shape (B, T)."""
    length = batch.drawn.shape[1]
    positions = (batch.real.cumsum(dim=1) - 1).clamp(min=0)
    logits = model(batch.ids, attention_mask=batch.real, position_ids=positions).logits
    before = logits[:, -length - 1 : -1].transpose(1, 2)
    return -cross_entropy(before, batch.ids[:, -length:], reduction="none") * batch.drawn


# Learning ------------------------------------------------------------------------------------


def advantages(rewards: np.ndarray, expected: np.ndarray, logprobs: Tensor, drawn: Tensor):
    """Return how much to reinforce each response, shape (B,).

    That is its reward less what was expected of its prompt. It is divided by an estimate of the
    norm of ∇ log π, without which confident responses would hardly count (docs/belief.md).
    """
    improbable = torch.where(drawn, 1 - logprobs.exp(), 0.0)
    norms = (improbable.square().sum(dim=1).sqrt() / drawn.sum(dim=1)).numpy()
    median = np.median(norms)
    return torch.from_numpy((rewards - expected) * median / np.maximum(norms, median / 10)).float()


def learn(model, optimizer, warm_up, batch: Batch, advantage: Tensor, old: Tensor, rng) -> None:
    """Make the updates of a step: the clipped policy gradient on random mini-batches."""
    for places in np.array_split(rng.permutation(len(batch.ids)), UPDATES):
        part, chosen = batch.rows(places), torch.from_numpy(places)
        ratio = (log_probabilities(model, part) - old[chosen]).exp()
        gain = advantage[chosen, None] * ratio
        bounded = advantage[chosen, None] * ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
        per_token = torch.minimum(gain, bounded) * part.drawn
        loss = -(per_token.sum(dim=1) / part.drawn.sum(dim=1)).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
        optimizer.step()
        optimizer.zero_grad()
        warm_up.step()


# The loop ------------------------------------------------------------------------------------


def accuracy(model, tokenizer, problems: dict[str, str], samples: int = 4) -> float:
    """Return the mean pass rate on held-out problems, avg@`samples`."""
    questions = [question for question in problems for _ in range(samples)]
    texts = draw(model, tokenizer, questions).texts
    pairs = zip(questions, texts, strict=True)
    return float(np.mean([reward(text, problems[question]) for question, text in pairs]))


def train(steps: int = 50, seed: int = 0, batch_size: int = BATCH) -> list[tuple[int, float]]:
    """Train, and return the held-out accuracy by the response tokens drawn before it."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # so small a model loses more than it gains by a second one
    rng = np.random.default_rng(seed)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.0)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / WARM_UP, total_iters=WARM_UP)

    heldout = make_problems(128, seed=20_000_000)
    problems = make_problems(4096, seed, without=set(heldout))
    belief = rw.LogitKalman(len(problems))
    sampler = rw.Posterior(list(problems), batch_size, seed, belief=belief, exploration=0.5)

    curve, tokens = [(0, accuracy(model, tokenizer, heldout))], 0
    print(f"before training: held-out accuracy {curve[0][1]:.3f}")
    for step in range(1, steps + 1):
        questions = sampler.ask()
        expected = sampler.expected_pass_rates(questions)
        batch = draw(model, tokenizer, questions)
        pairs = zip(batch.texts, questions, strict=True)
        rewards = np.array([reward(text, problems[question]) for text, question in pairs])
        with torch.no_grad():
            old = log_probabilities(model, batch)
        advantage = advantages(rewards, expected, old, batch.drawn)
        learn(model, optimizer, warm_up, batch, advantage, old, rng)
        sampler.tell(questions, correct=rewards.astype(int), drawn=np.ones(len(rewards), int))
        tokens += int(batch.drawn.sum())
        if step % math.ceil(steps / 5) == 0:
            curve.append((tokens, accuracy(model, tokenizer, heldout)))
            print(
                f"step {step:3}: reward {rewards.mean():.3f}, held-out accuracy {curve[-1][1]:.3f}"
            )
    return curve


def plot(curve: list[tuple[int, float]], path: str) -> None:
    """Draw held-out accuracy against response tokens."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.figure(figsize=(6, 4))
    pyplot.plot(*zip(*curve, strict=True), marker="o")
    pyplot.xlabel("response tokens")
    pyplot.ylabel("held-out accuracy (avg@4)")
    pyplot.ylim(0, 1)
    pyplot.grid(alpha=0.3)
    pyplot.tight_layout()
    pyplot.savefig(path, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="FILE", help="write the curve as a picture")
    given = parser.parse_args()
    found = train(given.steps, given.seed)
    if given.plot:
        plot(found, given.plot)
