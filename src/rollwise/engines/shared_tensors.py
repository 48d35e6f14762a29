"""Tensors of this process that another one on the machine reads where they are, without a copy."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor

CHUNK = 2**28
"""Bytes that are handed over at a time, and that tensors made for it take at most, if none is
larger."""

Handle = dict[str, Any]
"""A tensor's place in memory, in numbers, text and bytes: nothing that would have to be pickled."""


def handle_of(tensor: Tensor) -> Handle:
    """Return what `tensor_of` needs in another process of this user.

    On a GPU the memory is shared by CUDA's handles for it (`cudaIpcMemHandle_t`), elsewhere by a
    file in shared memory, into which the storage moves. Keep the tensor until it has been read.
    """
    storage = cast(Any, tensor.untyped_storage())
    on_gpu = tensor.device.type == "cuda"
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "layout": [tensor.storage_offset(), list(tensor.shape), list(tensor.stride())],
        "cuda": on_gpu,
        # The first entry for CUDA is the device's index, which may differ in the other process.
        "storage": list(storage._share_cuda_()[1:] if on_gpu else storage._share_filename_cpu_()),
    }


def tensor_of(handle: Handle, device: int) -> Tensor:
    """Open a tensor of another process.

    Args:
        handle: Made by `handle_of`, by a process of one's own: it says which memory is mapped.
        device: Index of the GPU that the tensor is on.
    """
    kind: Any = torch.UntypedStorage
    if handle["cuda"]:
        storage = kind._new_shared_cuda(device, *handle["storage"])
    else:
        storage = kind._new_shared_filename_cpu(*handle["storage"])
    empty = torch.empty(0, dtype=getattr(torch, handle["dtype"]), device=storage.device)
    return empty.set_(storage, *handle["layout"])


def in_chunks(
    tensors: Iterable[tuple[str, Tensor]], size: int = CHUNK
) -> Iterator[dict[str, Tensor]]:
    """Group named tensors, contiguous ones, each group closed once it has `size` bytes or more."""
    chunk: dict[str, Tensor] = {}
    for name, tensor in tensors:
        chunk[name] = tensor.detach().contiguous()
        if sum(each.nbytes for each in chunk.values()) >= size:
            yield chunk
            chunk = {}
    if chunk:
        yield chunk
