"""What vLLM's own processes load: they read weights, and end with the process that started them."""

import os
import select
import threading

import torch

PARENT = "ROLLWISE_VLLM_PARENT"
"""The environment variable with the id of the process that started vLLM."""


class WeightReader:
    """A method added to vLLM's worker, which becomes a subclass of this class too."""

    def read_weights(self, path: str) -> None:
        """Reload the model's weights from `vllm_weights.SharedWeights.path`."""
        weights = torch.load(path, "cpu", mmap=True, weights_only=True)
        self.reload_weights(weights_iterator=weights.items())  # type: ignore[attr-defined]


def end_with(process: int) -> None:
    """Wait until another process has ended, however it did, and end this one."""
    try:
        select.select([os.pidfd_open(process)], [], [])
    finally:  # it may have ended before
        os._exit(1)


if (parent := int(os.environ.get(PARENT, "0"))) not in (0, os.getpid()):
    threading.Thread(target=end_with, args=[parent], daemon=True).start()
