"""Starts vLLM in a process of its own."""

import os
from typing import Any

import torch

from rollwise.engines.settings import VLLMSettings
from rollwise.errors import EngineError

ENVIRONMENT = {
    # The learner has used threads; a fork of its process could wait for them forever.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment variables for vLLM, unless the user has set them."""


def start_process(path: str, context: int, slots: int, settings: VLLMSettings) -> Any:
    """Start vLLM's asynchronous engine on the running event loop; the arguments are `VLLMEngine`'s.

    Raises:
        EngineError: vLLM is not installed, or did not start.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from vllm import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise EngineError(f"engine.type = 'vllm' needs vLLM: pip install vllm ({error})") from None
    free_cached_memory()
    arguments = AsyncEngineArgs(
        model=path,
        dtype=settings.dtype,
        max_model_len=context,
        max_num_seqs=slots,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        tensor_parallel_size=settings.tensor_parallel_size,
        enforce_eager=settings.enforce_eager,
        enable_sleep_mode=settings.sleep_level > 0,
        enable_prefix_caching=True,
        # On the CPU, chunking a prompt changes the random numbers of its response.
        enable_chunked_prefill=False if current_platform.is_cpu() else None,
        logprobs_mode="processed_logprobs",
        load_format="safetensors",
        trust_remote_code=False,
        skip_tokenizer_init=True,
        generation_config="vllm",
        worker_extension_cls="rollwise.engines.shared_weights.WeightReader",
        disable_log_stats=True,
    )
    try:
        return AsyncLLM.from_engine_args(arguments)
    except (RuntimeError, ValueError, OSError) as error:
        raise EngineError(f"vLLM did not start with {path}: {error}") from error


def free_cached_memory() -> None:
    """Return memory that torch keeps for this process, but does not use, to the device."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
