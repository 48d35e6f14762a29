"""A few tokens through a model in float32: whether other ways to run it give what its own does."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from transformers import PreTrainedModel

from rollwise.engines.settings import context_of
from rollwise.errors import ModelError, RollwiseError, is_out_of_memory, one_line

HALVES = (torch.bfloat16, torch.float16)


class _InFloat32(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operations in float32 that would run in half precision, one operand at a time.

    The rounding of half precision would hide mistakes, and a copy of a large model in float32 would
    not fit beside it.
    """

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operation with its operands, and the dtypes that it is given, in float32."""
        args, kwargs = tree_map(_widened, (args, kwargs or {}))
        return func(*args, **kwargs)


def in_float32() -> AbstractContextManager[Any]:
    """Return a context in which operations run in float32, whatever the precision of weights."""
    return _InFloat32()  # type: ignore[no-untyped-call]


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.dtype in HALVES else value
    return torch.float32 if isinstance(value, torch.dtype) and value in HALVES else value


@contextmanager
def trial(model: PreTrainedModel, purpose: str) -> Iterator[None]:
    """Try something with a model; a ModelError if it raises anything.

    Args:
        model: A causal language model.
        purpose: What it cannot be used for if it fails, such as "drawn from".
    """
    try:
        yield
    except Exception as error:  # a model may run any code
        if isinstance(error, RollwiseError) or is_out_of_memory(error):
            raise
        fault = f"it fails on a few tokens ({one_line(error)})"
        raise refusal(model, purpose, fault) from error


def refusal(model: PreTrainedModel, purpose: str, fault: str) -> ModelError:
    """Return the error that says what a model cannot be used for, and why."""
    return ModelError(f"model.path: {type(model).__name__} cannot be {purpose}: {fault}")


def refuse_sparse(model: PreTrainedModel) -> None:
    """Refuse attention to a chosen few of the earlier tokens, if the context has more than those.

    Which are chosen depends, in the code of `transformers`, on padding and on the cache.

    Raises:
        ModelError: See above.
    """
    config = model.config.get_text_config()
    context = context_of(config) or math.inf
    for name in ("index_topk", "keep_window_size"):  # DeepSeek-V3.2 and its descendants; Doge
        if (most := getattr(config, name, None)) is not None and most < context:
            raise ModelError(
                f"model.path: {type(model).__name__} attends to {most} chosen tokens (`{name}`), "
                "and beyond these its probabilities depend on how it is run: lower "
                f"`max_position_embeddings` in its config.json to {most}, or take another model"
            )


def trial_tokens(model: PreTrainedModel, count: int) -> list[int]:
    """Return token ids of the model's vocabulary, most of them different, and none that pads.

    RoBERTa, for one, counts no positions for tokens that pad.
    """
    config = model.config.get_text_config()
    known = [i for i in range(min(config.vocab_size, 100)) if i != config.pad_token_id]
    return [known[(3 + 7 * place) % len(known)] for place in range(count)]


def plain_logits(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """Return the logits, shape (T, V), of one sequence by the model's own code."""
    ids = torch.tensor([[*tokens]], device=model.device)
    logits: Tensor = model(input_ids=ids, use_cache=False).logits[0]
    return logits


def plain_logprobs(
    model: PreTrainedModel,
    prompt: Sequence[int],
    response: Sequence[int],
    temperature: float = 1.0,
) -> Tensor:
    """Return log π of a response's tokens, shape (T,), by the model's own code."""
    logits = plain_logits(model, [*prompt, *response])[len(prompt) - 1 : -1]
    chosen = torch.tensor([[*response]], device=logits.device).mT
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    return logits.log_softmax(dim=1).gather(1, chosen).squeeze(1)


def close(found: Tensor, wanted: Tensor) -> bool:
    """Return whether values agree within 1e-3 of the largest; only finite ones do."""
    most = float((found - wanted).abs().max())
    return most <= 1e-3 * float(wanted.abs().max())  # comparisons with NaN are false


def describe_fault(model: PreTrainedModel) -> str:
    """Return why a model's log-probabilities depend on how it is run."""
    tokens = trial_tokens(model, 6)
    whole, part = plain_logits(model, tokens), plain_logits(model, tokens[:3])
    if not whole.isfinite().all():
        return "its logits are not finite"
    if not close(part, whole[:3]):
        return "its logits depend on later tokens, so that it is no causal language model"
    return "its code in transformers gives one sequence other probabilities when run another way"
