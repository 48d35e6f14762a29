"""What vLLM's processes read: all weights from memory, or adapters from a folder."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor


class SharedWeights:
    """A model's weights in a file in memory, which is on no disk, for `torch.load`.

    They are copied once, tensor by tensor, from any device. Linux only.

    Args:
        weights: By their names.
        dtype: That of the reader, to which matrices on a device are rounded; by default none are.

    Attributes:
        path: Where other processes of this user find the file while this process runs.
    """

    def __init__(self, weights: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> None:
        self._file = open(os.memfd_create("rollwise-weights"), "wb")  # noqa: SIM115
        self.path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        checksums = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)  # of memory, they would take most of the time
        try:
            torch.save({name: _as(tensor, dtype) for name, tensor in weights.items()}, self._file)
        finally:
            torch.serialization.set_crc32_options(checksums)
        self._file.flush()

    def close(self) -> None:
        """Free the memory; processes that have the file open keep what they read."""
        self._file.close()


def _as(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Round a matrix on its device, which halves what is copied; norms and biases are small."""
    tensor = tensor.detach()
    if (
        tensor.device.type == "cpu"
        or dtype is None
        or tensor.ndim < 2
        or not tensor.is_floating_point()
    ):
        return tensor
    return tensor.to("cpu", dtype)


class SavedAdapters:
    """Adapters in a temporary folder, as peft saves them, from which vLLM reads them.

    Args:
        weights: By peft's names.
        settings: peft's configuration of them.
    """

    def __init__(self, weights: Mapping[str, Tensor], settings: Any) -> None:
        self._folder = TemporaryDirectory(prefix="rollwise-adapters-")
        settings.save_pretrained(self._folder.name)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        save_file(tensors, Path(self._folder.name) / "adapter_model.safetensors")

    def request(self, load_inplace: bool = False) -> Any:
        """Make what tells vLLM to use them, or to read them again."""
        from vllm.lora.request import LoRARequest

        return LoRARequest("trained", 1, self._folder.name, load_inplace=load_inplace)

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()
