"""Learners and examples for tests."""

from dataclasses import replace

import numpy as np
import torch
from plain_pytorch import plain_logprobs

from rollwise.config import LearnerSettings
from rollwise.step import Example, Response
from rollwise.training.learner import Learner

SAME = 1e-4
"""Log-probabilities this close are the same: their difference is the relative one of π."""

SIZES = [(3, 5, 1.0), (1, 2, -0.5), (6, 1, 0.25), (2, 7, 0.0), (4, 4, -1.0), (6, 6, 2.0)]
"""Prompt and response tokens, and the advantage."""


def random_examples(sizes=SIZES, seed=0):
    """Responses of random tokens, with random log-probabilities."""
    rng, other = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    examples = []
    for prompt, response, advantage in sizes:
        tokens = rng.integers(2, 17, prompt + response).tolist()
        logprobs = other.normal(-2, 0.3, response)
        response = Response(tokens[prompt:], logprobs)
        examples.append(Example(tokens[:prompt], response, advantage))
    return examples


def changed(example, **response):
    """The example with another response."""
    return replace(example, response=replace(example.response, **response))


@torch.no_grad()
def make_examples(model, sizes=SIZES, temperature=1.0, seed=0):
    """The same, with the log-probabilities that an engine would report."""
    return [
        changed(example, logprobs=plain_logprobs(model, example, temperature).numpy())
        for example in random_examples(sizes, seed)
    ]


def make_learner(model, temperature=1.0, threads=None, **settings):
    defaults = {"learning_rate": 1e-2, "warmup_updates": 0, "max_grad_norm": 1e9}
    return Learner(model, LearnerSettings(**defaults | settings), temperature, threads=threads)


def watch(learner):
    """Collects (weights before, gradient, learning rate) of each optimizer step."""
    steps = []

    def collect(optimizer, *_):
        steps.append(
            (
                [p.detach().clone() for p in learner.parameters],
                [p.grad.clone() for p in learner.parameters],
                optimizer.param_groups[0]["lr"],
            )
        )

    learner.optimizer.register_step_pre_hook(collect)
    return steps


def learned(learner, examples):
    """Learn once: what is reported, and the gradient of each optimizer step."""
    steps = watch(learner)
    metrics = learner.learn(examples)
    return metrics, [gradient for _, gradient, _ in steps]


def watch_batches(learner):
    """Collects the shape of each batch that is learned from; in order with one thread."""
    shapes = []
    learner._probed = lambda examples: torch.zeros(1)  # which runs others
    learner._run.model.get_decoder().register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    return shapes
