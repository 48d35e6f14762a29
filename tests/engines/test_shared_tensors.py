"""Tensors that another process reads where they are."""

import json
import multiprocessing

import pytest
import torch

from rollwise.engines.shared_tensors import handle_of, in_chunks, tensor_of

WHOLE = torch.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("part", [lambda t: t, lambda t: t[1:3], lambda t: t.T, lambda t: t[2, 3]])
def test_a_handle_opens_the_same_memory(dtype, part):
    tensor = part(WHOLE.to(dtype).clone())
    opened = tensor_of(handle_of(tensor), device=0)
    assert (opened.shape, opened.stride(), opened.dtype) == (
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
    )
    assert torch.equal(opened, tensor)
    tensor += 1
    assert torch.equal(opened, tensor)


def double(handle):
    tensor_of(handle, device=0).mul_(2)


def test_a_handle_is_plain_data_that_another_process_can_open():
    tensor = WHOLE.clone()
    handle = handle_of(tensor)
    assert json.dumps(handle, default=lambda value: value.decode("ascii"))  # else only bytes
    process = multiprocessing.get_context("spawn").Process(target=double, args=(handle,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert torch.equal(tensor, 2 * WHOLE)


def test_chunks_end_once_they_are_large_enough():
    """Tensors of 4, 8, 40 and 4 bytes in chunks of 10."""
    sizes = {"a": 1, "b": 2, "c": 10, "d": 1}
    tensors = {name: torch.ones(size, requires_grad=True) for name, size in sizes.items()}
    chunks = list(in_chunks(tensors.items(), 10))
    assert [list(chunk) for chunk in chunks] == [["a", "b"], ["c"], ["d"]]
    found = {name: tensor for chunk in chunks for name, tensor in chunk.items()}
    assert all(tensor.data_ptr() == tensors[name].data_ptr() for name, tensor in found.items())
    assert not any(tensor.requires_grad for tensor in found.values())
    (strided,) = in_chunks([("t", WHOLE.T)])
    assert strided["t"].is_contiguous()
    assert list(in_chunks([])) == []
