"""A bound on how much a single response can move the weights."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from rollwise.errors import ModelError
from rollwise.training.packing import Segments

GROWTH = 1.05
"""The most that a bound grows from one update to the next."""


class ResponseCap:
    """Bounds the gradient of each response while it flows back through the model.

    Gradients of responses have heavy tails: at times one out of a hundred is tens of times larger
    than the median one, and decides the direction of the whole update; scaling the update to a
    fixed norm (`learner.max_grad_norm`) then leaves nothing of the others.

    At the input of each layer of the model, and at the output of the last one, the gradient of a
    response whose norm exceeds the bound there is scaled down to it, before it flows on, within the
    one backward pass.

    A bound is `ratio` times the median norm of the update before, so that it does not depend on how
    responses are split into micro-batches; it falls at once, but grows by at most 5 % an update.
    The first update takes the median of each micro-batch.

    A backward pass has one row for each response, or a single one of `Segments`. A learner makes
    each update within `bounding`.

    Attributes:
        bounds: At each place, shape (layers + 1,): on the norm of the gradient of one response's
            summed loss; infinite until something was measured there.
        capped: Responses scaled down so far, at the place where most were in each update.

    Raises:
        ModelError: The layers of the model cannot be found.
    """

    def __init__(self, model: PreTrainedModel, ratio: float) -> None:
        self.ratio, self.capped, self._tokens = ratio, 0, 1.0
        self._layers = decoder_layers(model)
        self.bounds: NDArray[np.float64] = np.full(len(self._layers) + 1, np.inf)
        self._seen: list[list[Tensor]] = [[] for _ in self.bounds]

    @contextmanager
    def bounding(self, tokens: float) -> Iterator[None]:
        """Bound the gradients of an update whose loss is divided by `tokens`; move the bounds."""
        self._tokens = tokens
        with ExitStack() as hooks:
            for place, layer in enumerate(self._layers):
                see_input = partial(self._see_input, place)
                hooks.enter_context(layer.register_forward_pre_hook(see_input, with_kwargs=True))
            last = self._layers[-1].register_forward_hook(self._see_output, with_kwargs=True)
            hooks.enter_context(last)
            yield
        seen = [torch.cat(rows) if rows else torch.zeros(0, 2) for rows in self._seen]
        self._seen = [[] for _ in self.bounds]
        self.capped += max(int(rows[:, 1].sum()) for rows in seen)
        medians = np.array([float(_median(rows[:, 0])) for rows in seen])
        self.bounds = np.minimum(GROWTH * self.bounds, self.ratio * medians)

    def _see_input(self, place: int, _: nn.Module, args: Any, kwargs: Any) -> None:
        self._watch(place, args[0] if args else kwargs["hidden_states"], kwargs)

    def _see_output(self, _: nn.Module, __: Any, kwargs: Any, output: Any) -> None:
        states = output[0] if isinstance(output, tuple) else output
        self._watch(len(self._layers), states, kwargs)

    def _watch(self, place: int, states: Tensor, kwargs: Any) -> None:
        if torch.is_grad_enabled() and states.requires_grad:
            states.register_hook(partial(self._bounded, place, kwargs.get("own_attention")))

    def _bounded(self, place: int, segments: Segments | None, gradient: Tensor) -> Tensor:
        """Scale down what exceeds the bound; gradient of shape (R, columns, hidden).

        With segments its shape is (1, T, hidden), and each segment is a response.
        """
        own = gradient.detach().float()
        if segments is None:
            norms = own.flatten(1).norm(dim=1) * self._tokens
        else:
            squares = own[0].square().sum(dim=1)
            sums = torch.segment_reduce(squares, "sum", lengths=segments.sizes)
            norms = sums.sqrt() * self._tokens
        known = self.bounds[place]
        bound = norms.new_tensor(known) if np.isfinite(known) else self.ratio * _median(norms)
        too_large = norms > bound
        self._seen[place].append(torch.stack([norms, too_large.to(norms.dtype)], dim=1))
        scale = torch.where(too_large, bound / norms, 1.0).to(gradient.dtype)
        if segments is None:
            return gradient * scale[:, None, None]
        return gradient * scale.repeat_interleave(segments.sizes)[:, None]


def _median(norms: Tensor) -> Tensor:
    """The median of what is above 0; infinite if nothing is."""
    positive = norms[(norms > 0) & norms.isfinite()]
    return positive.median() if len(positive) else norms.new_tensor(torch.inf)


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Find the layers of a causal language model: the modules that are never split over devices."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    layers = [module for module in model.modules() if type(module).__name__ in names]
    if not layers:
        raise ModelError(
            f"response_cap bounds the gradient between the layers of a model, and those of "
            f"{type(model).__name__} are not known: set response_cap to 0"
        )
    return layers
