"""A continuous batch split over forked processes, so that small operations use all cores of a CPU.

This process draws in one part of the slots, with the model itself. Each other part has a process
forked from this one; these share a copy of the weights in memory.
"""

import contextlib
import copy
import gc
import itertools
import mmap
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rollwise.engines.continuous import ContinuousBatch, FlushInterval
from rollwise.engines.in_process import Response
from rollwise.errors import EngineError
from rollwise.sampling import Draw
from rollwise.signals import held_back, release

MakeBatch = Callable[[PreTrainedModel, int], ContinuousBatch]
"""Makes a batch that draws with a model, given the number of slots."""

WORTH_SPLITTING = 8
"""Draws begun together are split over the processes if each gets at least this many: a step of few
rows takes nearly as long as a step of one more."""


class SplitBatch:
    """A continuous batch whose slots are split over this process and forked ones.

    Args:
        model: On a CPU. The forked processes use a copy of its weights, updated when none of them
            draws.
        make_batch: Makes the part of each process.
        slots: The most responses drawn together.
        processes: How many, this one included; at most `slots`.

    Attributes:
        own: The part that is drawn in this process.
        forked: The others.
    """

    def __init__(
        self, model: PreTrainedModel, make_batch: MakeBatch, slots: int, processes: int
    ) -> None:
        self._shared = SharedModel(model)
        own, *others = split(slots, processes)
        self.forked = [ForkedBatch(make_batch(self._shared.model, count)) for count in others]
        self.own = make_batch(model, own)
        self._ended: list[Response] = []

    @property
    def parts(self) -> list["ContinuousBatch | ForkedBatch"]:
        """The parts of all processes."""
        return [*self.forked, self.own]

    @property
    def drawing(self) -> dict[Draw, Sequence[int]]:
        """Draw -> prompt, of the responses in flight."""
        parts = reversed(self.parts)
        return {draw: prompt for part in parts for draw, prompt in part.drawing.items()}

    @property
    def free_slots(self) -> int:
        """Slots without a response."""
        return sum(part.free_slots for part in self.parts)

    def open(self, slots: int) -> None:
        """Start over with `slots` free slots, and forget all prompts."""
        parts = self.parts
        for part, count in zip(parts, split(max(slots, len(parts)), len(parts)), strict=True):
            part.open(count)

    def forget_prompts(self) -> None:
        """Forget the keys and values of prompts, because the weights have changed."""
        for part in self.parts:
            part.forget_prompts()

    def fill(self, draws: Mapping[Draw, Sequence[int]]) -> None:
        """Begin draws, given their prompts; no more than there are free slots."""
        if not any(part.drawing for part in self.parts):
            self._shared.update()
        rest = iter(draws.items())
        for part, share in zip(self.parts, self._shares(len(draws)), strict=True):
            part.fill(dict(itertools.islice(rest, share)))

    def draw(self, interval: FlushInterval) -> list[Response]:
        """Draw in all processes; return the responses that have ended."""
        self.draw_ahead(interval)
        try:
            self._ended += self.own.draw(interval)
        finally:
            for part in self.forked:
                self._ended += part.drawn()
        ended, self._ended = self._ended, []
        return ended

    def draw_ahead(self, interval: FlushInterval) -> None:
        """Have idle forked processes draw in the meantime."""
        steps = interval.steps()
        for part in self.forked:
            if part.drawing and not part.is_drawing:
                part.begin_to_draw(steps)
                interval.drawn += steps * len(part.drawing)

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Free the slots of draws; returns the tokens drawn for them."""
        draws = list(draws)
        return sum(part.cancel(draws) for part in self.parts)

    def _shares(self, draws: int) -> list[int]:
        """Split draws over the parts: evenly if there are many, else the emptiest part first."""
        free = np.array([part.free_slots for part in self.parts])
        if draws >= WORTH_SPLITTING * len(free):
            ends = np.rint(np.cumsum(free) * draws / free.sum()).astype(int)
            return list(np.diff(ends, prepend=0).tolist())
        shares = np.zeros_like(free)
        for part in np.argsort(-free, kind="stable"):
            shares[part] = min(free[part], draws - shares.sum())
        return list(shares.tolist())


def split(slots: int, parts: int) -> list[int]:
    """Split slots into `parts` numbers as equal as can be."""
    return [slots // parts + (part < slots % parts) for part in range(parts)]


class SharedModel:
    """A copy of a model in memory that this process and forked ones share.

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


class ForkedBatch:
    """A continuous batch in a process that is forked from this one and ends with it.

    Args:
        batch: Runs there, and is no longer used here. Its model must be in shared memory.

    Attributes:
        drawing: Draw -> prompt, of the responses in flight.
        is_drawing: Whether the process draws tokens that `drawn` has not waited for yet.
    """

    def __init__(self, batch: ContinuousBatch) -> None:
        self.is_drawing = False
        self.drawing: dict[Draw, Sequence[int]] = {}
        self._slots = batch.free_slots
        self._pipe, theirs = multiprocessing.Pipe()
        self._unanswered = self._steps = 0
        self._steps_before: dict[Draw, int] = {}
        self._ended: list[Response] = []
        self._cancelled: set[Draw] = set()
        with theirs:
            self._process = _fork(_serve, batch, theirs, self._pipe)
        # At exit this comes before multiprocessing's SIGTERM, which the process ignores.
        Finalize(self, _end, (self._process, self._pipe), exitpriority=0)

    @property
    def free_slots(self) -> int:
        """Slots without a response."""
        return self._slots - len(self.drawing)

    def open(self, slots: int) -> None:
        """Start over with `slots` free slots, and forget all prompts."""
        self._answer()
        self._slots, self._ended = slots, []
        self._cancelled.clear()
        self.drawing, self._steps_before = {}, {}
        self._ask(ContinuousBatch.open, slots)

    def forget_prompts(self) -> None:
        """Forget the keys and values of prompts, because the weights have changed."""
        self._ask(ContinuousBatch.forget_prompts)

    def fill(self, draws: Mapping[Draw, Sequence[int]]) -> None:
        """Begin draws, given their prompts; no more than there are free slots."""
        if draws:
            if not self._cancelled.isdisjoint(draws):
                self.pause()  # what it has drawn for them so far is not to be taken for new
            self.drawing.update(draws)
            self._steps_before.update(dict.fromkeys(draws, self._steps))
            self._ask(ContinuousBatch.fill, draws)

    def begin_to_draw(self, steps: int) -> None:
        """Have the process draw `steps` tokens of each response."""
        self._ask(ContinuousBatch.advance, steps)
        self._steps += steps
        self.is_drawing = True

    def pause(self) -> None:
        """Wait until the process is idle; what has ended is kept, unless it was cancelled."""
        self._answer()
        self._ended = [response for response in self._ended if response.draw in self.drawing]
        self._cancelled.clear()

    def drawn(self) -> list[Response]:
        """Wait until the process is idle; return the responses that have ended."""
        self.pause()
        ended, self._ended = self._ended, []
        for response in ended:
            del self.drawing[response.draw], self._steps_before[response.draw]
        return ended

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Free the slots of those draws that are here; returns the tokens drawn for them.

        This does not wait: a response that ends in the meantime is dropped, and counted as if it
        had continued.
        """
        known = [draw for draw in draws if draw in self.drawing]
        if not known:
            return 0
        for draw in known:
            del self.drawing[draw]
        self._cancelled.update(known)
        self._ask(ContinuousBatch.cancel, known)
        return sum(1 + self._steps - self._steps_before.pop(draw) for draw in known)

    def _ask(self, method: Callable[..., Any], *arguments: Any) -> None:
        with self._alive():
            self._pipe.send((method.__name__, arguments))
        self._unanswered += 1

    def _answer(self) -> Any:
        """Return the answer to the last request, after waiting for all before it."""
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
        """Turn a broken pipe into an error that says how the process ended."""
        try:
            yield
        except (EOFError, ConnectionError):
            self._process.join()
            raise EngineError(
                "a process of the engine ended while it drew responses, with exit code "
                f"{self._process.exitcode} (-9 often means too little memory); what was saved is "
                "kept, and the same command goes on from there"
            ) from None


def _fork(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(
        target=target, args=arguments, name="rollwise-engine", daemon=True
    )
    with warnings.catch_warnings():
        # From 3.12 on Python warns of locks held by other threads; the batch takes none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        with held_back():
            process.start()
    return process


def _end(process: BaseProcess, pipe: Connection) -> None:
    pipe.close()
    process.kill()
    process.join()


def _serve(batch: ContinuousBatch, pipe: Connection, parents: Connection) -> None:
    """Call the methods that the parent asks for, until it ends."""
    parents.close()
    torch.set_num_threads(1)  # only one survives a fork
    gc.freeze()  # keep the collector off the parent's objects
    release(signal.SIG_IGN)  # they are for the parent, which ends this process
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            method, arguments = pipe.recv()
            try:
                answer = getattr(batch, method)(*arguments)
            except Exception as error:
                answer = error
            pipe.send(answer)
