"""An engine that misbehaves in a share of its calls, as a plug-in: the built-in one, wrapped."""

import itertools
import os
import random
import threading
from dataclasses import dataclass, field

from rollwise.engines import ENGINES, Engine, EngineSettings, LostDraw
from rollwise.errors import EngineError


@dataclass(frozen=True)
class Misdrawing(EngineSettings):
    """Its random numbers come from the environment, so that another start has others."""

    needs_model = True

    fault: str = field(default="late", metadata={"help": "What it does wrong."})
    rate: float = field(default=0.1, metadata={"help": "In this share of its calls."})

    def open(self, inputs):
        luck = random.Random(os.environ["MISBEHAVIOUR"])
        engine = ENGINES["transformers"]().open(inputs)
        return Faulty(engine, KINDS[self.fault], lambda: luck.random() < self.rate)


class Faulty(Engine):
    """Passes everything on to the engine within, but the results through a fault."""

    def __init__(self, engine, fault, unlucky):
        self.engine, self.fault, self.unlucky = engine, fault, unlucky
        self.held, self.before, self.lost = [], [], set()

    @property
    def free_slots(self):
        return self.engine.free_slots

    def submit(self, draws, prompts):
        self.engine.submit(draws, prompts)

    def wait(self):
        return self.fault(self, list(self.engine.wait()))

    def cancel(self, draws):
        draws = list(draws)
        held = [result for result in self.held if result.draw in draws]
        self.held = [result for result in self.held if result.draw not in draws]
        return self.engine.cancel(draws) + sum(len(result.tokens) for result in held)

    def load_weights(self, weights):
        self.engine.load_weights(weights)


def late(self, results):
    """Hold results back, also until all others are in, and hand them over in any order."""
    results = [*self.held, *results]
    late = [self.unlucky() for _ in results]
    if all(late):
        late = [False for _ in results]
    self.held = list(itertools.compress(results, late))
    return [result for result, is_late in zip(results, late, strict=True) if not is_late][::-1]


def repeat(self, results):
    """Answer again what was answered, at once and much later, in other steps too."""
    again = [one for one in [*self.before, *results] if results and self.unlucky()]
    self.before = [*self.before, *results][-50:]
    return [*results, *again]


def lose(self, results):
    """Lose draws, each at most once."""
    unlucky = {r.draw for r in results if r.draw not in self.lost and self.unlucky()}
    self.lost |= unlucky
    return [LostDraw(r.draw, "it misbehaves") if r.draw in unlucky else r for r in results]


def hang(self, results):
    """Never answer again."""
    return threading.Event().wait() if self.unlucky() else results


def fail(error):
    """Raise, as engines of ours do, or what is an error of its author's."""

    def maybe(self, results):
        if self.unlucky():
            raise error("it misbehaves")
        return results

    return maybe


KINDS = {
    "right": lambda self, results: results,
    "late and out of order": late,
    "twice": repeat,
    "lost": lose,
    "raises": fail(EngineError),
    "breaks": fail(KeyError),
    "forgets": lambda self, results: [result for result in results if not self.unlucky()],
    "hangs": hang,
}
