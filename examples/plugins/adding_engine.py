"""An engine of one's own, from scratch: it answers running sums by adding up, and errs at times."""
# ruff: noqa: D102 (the methods are those of `rollwise.engines.Engine`)

import re
from dataclasses import dataclass, field

import numpy as np

from rollwise.engines import Completion, Engine, EngineSettings


@dataclass(eq=False)
class AddingEngine(EngineSettings, Engine):
    """Answers `7+5-9?` by `7 12 3=3`, or with probability `errors` by `7 12 3=4`."""

    errors: float = field(default=0.3, metadata={"help": "Probability of a wrong answer."})
    free_slots = None  # it knows no bound

    def open(self, inputs):
        self.inputs, self.tokenizer, self.done = inputs, inputs.tokenizer, {}
        return self

    def submit(self, draws, prompts):
        for draw in draws:
            terms = re.findall(r"[+-]?\d", self.tokenizer.decode(prompts[draw.key]))
            sums = np.cumsum([0, *map(int, terms)])
            wrong = np.random.default_rng(draw.seed).random() < self.errors
            text = f"{' '.join(map(str, sums[1:]))}={sums[-1] + wrong}{self.tokenizer.eos_token}"
            whole = self.tokenizer.encode(text)
            tokens = whole[: self.inputs.max_new_tokens]
            text = self.tokenizer.decode(tokens, skip_special_tokens=True)
            logprobs = np.full(len(tokens), np.log(1 - self.errors) / len(tokens), np.float32)
            self.done[draw] = Completion(draw, tokens, logprobs, text, len(tokens) < len(whole))

    def wait(self):
        return [self.done.pop(draw) for draw in list(self.done)]

    def cancel(self, draws):
        return sum(len(self.done.pop(draw).tokens) for draw in draws if draw in self.done)

    def load_weights(self, weights): ...
