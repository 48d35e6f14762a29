"""Comparing results in float32, whose last digits depend on the processor that computed them."""

import numpy as np
import torch


def assert_close(found, wanted, relative=1e-4):
    """Fail if the two differ anywhere by more than `relative` times the largest value wanted.

    A value that is small because large ones cancel is no more exact than they are, so that the
    size of the whole is what a difference is measured by. Both may be arrays, tensors, or lists
    of them, which are measured together.
    """
    pairs = list(zip(_parts(found), _parts(wanted), strict=True))
    size = max(float(np.abs(part).max()) for _, part in pairs)
    assert size > 0, "there is nothing to compare with: all that is wanted is 0"
    for found_part, wanted_part in pairs:
        assert found_part.shape == wanted_part.shape
        difference = float(np.abs(found_part - wanted_part).max())
        assert difference <= relative * size, f"{difference} apart, where {size} is the largest"


def _parts(values):
    if isinstance(values, list | tuple):
        return [part for value in values for part in _parts(value)]
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().double().numpy()
    return [np.asarray(values, dtype=np.float64)]
