"""A lane in a process of its own, so that no lane waits for another's Python."""

import contextlib
import copy
import gc
import itertools
import mmap
import multiprocessing
import os
import signal
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rollwise.engines.lanes import Lane
from rollwise.engines.local import Response
from rollwise.sampling import Draw

CAN_FORK = sys.platform == "linux"
"""Elsewhere system libraries do not outlive a fork."""


class MirroredModel:
    """A copy of a model in memory that forked processes share.

    Args:
        model: On a CPU.

    Attributes:
        model: The copy.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        tensors = list(itertools.chain(model.parameters(), model.buffers()))
        ends = list(itertools.accumulate(_room(tensor) for tensor in tensors))
        memory = mmap.mmap(-1, max(1, ends[-1]))  # unlike /dev/shm, as large as memory allows
        self._pairs = []
        known: dict[int, Any] = {}
        for tensor, end in zip(tensors, ends, strict=True):
            if tensor.numel() == 0:
                continue
            flat = torch.frombuffer(
                memory, dtype=tensor.dtype, count=tensor.numel(), offset=end - _room(tensor)
            )
            mirrored = flat.view(tensor.shape)
            self._pairs.append((mirrored, tensor))
            known[id(tensor)] = (
                nn.Parameter(mirrored, requires_grad=False)
                if isinstance(tensor, nn.Parameter)
                else mirrored
            )
        self.model: PreTrainedModel = copy.deepcopy(model, known).eval()
        self.update()

    @torch.no_grad()
    def update(self) -> None:
        """Copy the model's weights as they are now."""
        for mirrored, tensor in self._pairs:
            mirrored.copy_(tensor)


def _room(tensor: Tensor) -> int:
    """Bytes for a tensor, its beginning aligned."""
    return -(-tensor.numel() * tensor.element_size() // 64) * 64


class ForkedLane:
    """A lane in a process that is forked from this one and ends with it.

    Args:
        lane: Is run there; here it is used no more. Its model must be in shared memory.

    Attributes:
        drawing: Draw -> prompt, of the responses under way.
        is_drawing: Tokens are being drawn, which `drawn` has not waited for yet.
    """

    def __init__(self, lane: Lane) -> None:
        self.is_drawing = False
        self.drawing: dict[Draw, Sequence[int]] = {}
        self._slots = lane.free_slots
        self._pipe, theirs = multiprocessing.Pipe()
        self._unanswered = self._steps = 0
        self._steps_before: dict[Draw, int] = {}
        self._ended: list[Response] = []
        with theirs:
            self._process = _fork(_serve, lane, theirs, self._pipe)
        weakref.finalize(self, _end, self._process, self._pipe, os.getpid())

    @property
    def free_slots(self) -> int:
        """Slots that nothing is drawn in."""
        return self._slots - len(self.drawing)

    def open(self, slots: int) -> None:
        """Begin anew with so many slots, all of them free, and forget all prompts."""
        self._answer()
        self._slots, self._ended = slots, []
        self.drawing, self._steps_before = {}, {}
        self._ask(Lane.open, slots)

    def forget_prompts(self) -> None:
        """Forget what is known of prompts, for the weights are others now."""
        self._ask(Lane.forget_prompts)

    def fill(self, draws: Mapping[Draw, Sequence[int]]) -> None:
        """Begin draws, given their prompts; no more than there are free slots."""
        if draws:
            self.drawing.update(draws)
            self._steps_before.update(dict.fromkeys(draws, self._steps))
            self._ask(Lane.fill, draws)

    def begin_to_draw(self, steps: int) -> None:
        """Have so many tokens of each response drawn meanwhile."""
        self._ask(Lane.draw_some, steps)
        self._steps += steps
        self.is_drawing = True

    def drawn(self) -> list[Response]:
        """Wait for what was begun, if anything; hand over the responses that have ended."""
        self._answer()
        ended = [response for response in self._ended if response.draw in self.drawing]
        self._ended = []
        for response in ended:
            del self.drawing[response.draw], self._steps_before[response.draw]
        return ended

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Free the slots of draws, where they are here; returns the tokens drawn in them.

        Nothing is waited for: a response that ends meanwhile is dropped, and counts as if it had
        gone on.
        """
        known = [draw for draw in draws if draw in self.drawing]
        if not known:
            return 0
        for draw in known:
            del self.drawing[draw]
        self._ask(Lane.cancel, known)
        return sum(1 + self._steps - self._steps_before.pop(draw) for draw in known)

    def _ask(self, method: Callable[..., Any], *arguments: Any) -> None:
        with self._alive():
            self._pipe.send((method.__name__, arguments))
        self._unanswered += 1

    def _answer(self) -> Any:
        """The answer to the last question; those before it have been waited for, too."""
        answer = None
        while self._unanswered:
            with self._alive():
                answer = self._pipe.recv()
            self._unanswered -= 1
            self.is_drawing = self.is_drawing and self._unanswered > 0
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, list):
                self._ended += answer
        return answer

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        """Say so where the process has ended."""
        try:
            yield
        except (EOFError, ConnectionError):
            self._process.join()
            raise RuntimeError(
                "a process of the engine ended while it drew responses, with exit code "
                f"{self._process.exitcode} (-9 is often a want of memory)"
            ) from None


def _fork(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(
        target=target, args=arguments, name="rollwise-lane", daemon=True
    )
    with warnings.catch_warnings():
        # From 3.12 on Python warns of locks that other threads hold; a lane takes none of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def _end(process: BaseProcess, pipe: Connection, parent: int) -> None:
    pipe.close()
    if os.getpid() == parent:  # and not another process that was forked from it later
        process.kill()
        process.join()


def _serve(lane: Lane, pipe: Connection, parents: Connection) -> None:
    """Do what the other process asks for, until it ends."""
    parents.close()
    torch.set_num_threads(1)  # further ones do not outlive a fork
    gc.freeze()  # what the other process holds need not be looked through here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            method, arguments = pipe.recv()
            try:
                answer = getattr(lane, method)(*arguments)
            except Exception as error:
                answer = error
            pipe.send(answer)
