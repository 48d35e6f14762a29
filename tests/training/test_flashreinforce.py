"""FlashREINFORCE as `method` has it, against its formulas written out for one response at a time.

A_i = r_i − mean of the batch's rewards. Each token weighs w = π/π_engine, detached. A response is
left out where the mean over its tokens of p·log(p/q) + (1 − p)·log((1 − p)/(1 − q)) exceeds δ, with
p the engine's probability and q the learner's. The loss is −(1/B) Σ_i (1/T_i) Σ_t w·A_i·log π: the
mean of token means over all B responses, those left out included.
"""

import copy
from dataclasses import replace

import numpy as np
import torch
from closeness import assert_close
from plain_learner import learned
from plain_pytorch import plain_logprobs

from rollwise.config import LearnerSettings
from rollwise.methods import METHODS
from rollwise.step import Example, Response
from rollwise.training.learner import Learner

METHOD = METHODS["flash_reinforce"].settings
DELTA = METHOD["learner"]["max_divergence"]
REWARDS, LENGTHS = (1.0, 0.0, 0.0, 1.0, 0.0), (5, 2, 7, 4, 3)
FAR_OFF = 3
"""The response on which engine and learner disagree."""


def responses(model):
    """Prompt, response, and log-probabilities of an engine that differs a little, or a lot."""
    rng = np.random.default_rng(0)
    for i, length in enumerate(LENGTHS):
        prompt, tokens = (rng.integers(2, 17, n).tolist() for n in (3, length))
        response = Response(tokens)
        with torch.no_grad():
            own = plain_logprobs(model, Example(prompt, response, 0.0)).numpy()
        yield prompt, response, own + (1.5 if i == FAR_OFF else rng.normal(0, 0.02, length))


def test_the_gradient_is_that_of_the_formulas(make_model):
    model = make_model()
    plain, drawn = copy.deepcopy(model), list(responses(model))
    advantages = np.array(REWARDS) - np.mean(REWARDS)
    loss, left_out = torch.zeros(()), []
    for i, (prompt, response, engine) in enumerate(drawn):
        own = plain_logprobs(plain, Example(prompt, response, 0.0))
        p, q = (np.clip(np.exp(x), 1e-6, 1 - 1e-6) for x in (engine, own.detach().numpy()))
        if np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))) > DELTA:
            left_out.append(i)
            continue
        weights = torch.exp(own.detach() - torch.tensor(engine))
        loss = loss - (weights * advantages[i] * own).mean() / len(drawn)
    assert left_out == [FAR_OFF]
    loss.backward()

    settings = METHOD["learner"] | {"old_logprobs": "engine", "mini_batches": 1}
    learner = Learner(model, LearnerSettings(**settings, max_grad_norm=1e9))
    examples = [
        Example(prompt, replace(response, logprobs=engine), advantage)
        for (prompt, response, engine), advantage in zip(drawn, advantages, strict=True)
    ]
    metrics, [found] = learned(learner, examples)
    assert metrics["diverged_responses"] == 1
    assert_close(found, [p.grad for p in plain.parameters()])
