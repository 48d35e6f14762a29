"""A model's weights where other processes on the machine can read them."""

import json
import os
from collections.abc import Mapping

import torch
from torch import Tensor

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class SharedWeights:
    """Weights in a safetensors file in memory, without a name on any disk.

    They are copied once, tensor by tensor, from any device. Linux only.

    Attributes:
        path: Where other processes of this user find the file while this process runs.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._file = open(os.memfd_create("rollwise-weights"), "wb")  # noqa: SIM115
        self.path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        header = json.dumps(_layout(weights)).encode()
        header += b" " * (-len(header) % 8)
        self._file.write(len(header).to_bytes(8, "little") + header)
        for tensor in weights.values():
            flat = tensor.detach().cpu().contiguous().flatten()
            self._file.write(flat.view(torch.uint8).numpy().data)
        self._file.flush()

    def close(self) -> None:
        """Free the memory; processes that have the file open keep what they read."""
        self._file.close()


def _layout(weights: Mapping[str, Tensor]) -> dict[str, object]:
    """Make the header of a safetensors file: the type, shape and place of each tensor."""
    layout: dict[str, object] = {}
    begin = 0
    for name, tensor in weights.items():
        end = begin + tensor.numel() * tensor.element_size()
        kind = DTYPES[tensor.dtype]
        layout[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [begin, end]}
        begin = end
    return layout
