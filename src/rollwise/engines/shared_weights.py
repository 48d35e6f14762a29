"""A model's weights where other processes on the machine can read them."""

import os
from collections.abc import Mapping

import torch
from torch import Tensor


class SharedWeights:
    """Weights in a file in memory, which is on no disk, for `torch.load`.

    They are copied once, tensor by tensor, from any device. Linux only.

    Attributes:
        path: Where other processes of this user find the file while this process runs.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._file = open(os.memfd_create("rollwise-weights"), "wb")  # noqa: SIM115
        self.path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        torch.save({name: tensor.detach() for name, tensor in weights.items()}, self._file)
        self._file.flush()

    def close(self) -> None:
        """Free the memory; processes that have the file open keep what they read."""
        self._file.close()


class WeightReader:
    """A method added to vLLM's worker, which becomes a subclass of this class too."""

    def read_weights(self, path: str) -> None:
        """Reload the model's weights from `SharedWeights.path`."""
        weights = torch.load(path, "cpu", mmap=True, weights_only=True)
        self.reload_weights(weights_iterator=weights.items())  # type: ignore[attr-defined]
