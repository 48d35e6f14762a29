"""An engine that misbehaves in a share of its calls, as a plug-in: the built-in one, wrapped."""

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
        engine = ENGINES["transformers"]().open(inputs)
        luck = random.Random(os.environ["MISBEHAVIOUR"])
        return KINDS[self.fault](engine, lambda: luck.random() < self.rate)


class Wrapping(Engine):
    """Passes everything on to the engine within."""

    def __init__(self, engine, unlucky):
        self.engine, self.unlucky = engine, unlucky

    @property
    def free_slots(self):
        return self.engine.free_slots

    def submit(self, draws, prompts):
        self.engine.submit(draws, prompts)

    def wait(self):
        return self.engine.wait()

    def cancel(self, draws):
        return self.engine.cancel(draws)

    def load_weights(self, weights):
        self.engine.load_weights(weights)


class Late(Wrapping):
    """Holds results back, also until all others are in, and hands them over in any order."""

    held = ()

    def wait(self):
        results = [*self.held, *self.engine.wait()]
        kept = [self.unlucky() for _ in results]
        if all(kept):
            kept = [False for _ in results]
        self.held = [result for result, late in zip(results, kept, strict=True) if late]
        return [result for result, late in zip(results, kept, strict=True) if not late][::-1]

    def cancel(self, draws):
        draws = list(draws)
        held = [result for result in self.held if result.draw in draws]
        self.held = [result for result in self.held if result.draw not in draws]
        return self.engine.cancel(draws) + sum(len(result.tokens) for result in held)


class Repeating(Wrapping):
    """Answers again what it has answered, at once and much later, in other steps too."""

    before = ()

    def wait(self):
        results = list(self.engine.wait())
        again = [one for one in [*self.before, *results] if results and self.unlucky()]
        self.before = [*self.before, *results][-50:]
        return [*results, *again]


class Losing(Wrapping):
    """Loses draws, each at most once."""

    def __init__(self, engine, unlucky):
        super().__init__(engine, unlucky)
        self.lost = set()

    def wait(self):
        return [self.outcome(result) for result in self.engine.wait()]

    def outcome(self, result):
        if result.draw in self.lost or not self.unlucky():
            return result
        self.lost.add(result.draw)
        return LostDraw(result.draw, "it misbehaves")


class Raising(Wrapping):
    """Raises, as engines of ours do."""

    error = EngineError

    def submit(self, draws, prompts):
        self.fail()
        super().submit(draws, prompts)

    def wait(self):
        self.fail()
        return super().wait()

    def fail(self):
        if self.unlucky():
            raise self.error("it misbehaves")


class Breaking(Raising):
    """Raises what is an error of its author's."""

    error = KeyError


class Forgetting(Wrapping):
    """Loses draws without a word."""

    def wait(self):
        return [result for result in self.engine.wait() if not self.unlucky()]


class Hanging(Wrapping):
    """Never answers again."""

    def wait(self):
        if self.unlucky():
            threading.Event().wait()
        return super().wait()


KINDS = {
    "right": Wrapping,
    "late and out of order": Late,
    "twice": Repeating,
    "lost": Losing,
    "raises": Raising,
    "breaks": Breaking,
    "forgets": Forgetting,
    "hangs": Hanging,
}
