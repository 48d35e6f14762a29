"""An engine of one's own, from scratch: it answers running sums by adding up, and errs at times."""
# ruff: noqa: D102 (the methods are those of `rollwise.engines.Engine`)

import re
from dataclasses import dataclass, field

import numpy as np

from rollwise.engines import Engine, EngineSettings, Response


@dataclass(eq=False)
class AddingEngine(EngineSettings, Engine):
    """Answers `7+5-9?` by `7 12 3=3`, or with probability `errors` by `7 12 3=4`."""

    errors: float = field(default=0.3, metadata={"help": "Probability of a wrong answer."})

    def open(self, inputs):
        self.inputs, self.tokenizer = inputs, inputs.tokenizer
        return self

    async def complete(self, draw, prompt):
        terms = re.findall(r"[+-]?\d", self.tokenizer.decode(prompt))
        sums = np.cumsum([0, *map(int, terms)])
        wrong = np.random.default_rng(draw.seed).random() < self.errors
        text = f"{' '.join(map(str, sums[1:]))}={sums[-1] + wrong}{self.tokenizer.eos_token}"
        whole = self.tokenizer.encode(text)
        tokens = whole[: self.inputs.max_new_tokens]
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        logprobs = np.full(len(tokens), np.log(1 - self.errors) / len(tokens), np.float32)
        return Response(tokens, logprobs, text, truncated=len(tokens) < len(whole))

    def load_weights(self, weights): ...
