"""A prompt sampler of one's own: those prompts first that were seen least, ties at random."""
# ruff: noqa: D102 (the methods are those of `rw.PromptSampler`)

from dataclasses import dataclass, field

import numpy as np

import rollwise as rw


@dataclass(eq=False)
class LeastSeen(rw.PromptSampler):
    """The prompts with the fewest responses so far; a solved prompt counts `solved_as` more."""

    keys: list
    batch_size: int
    seed: int = 0
    solved_as: int = field(default=8, metadata={"help": "Responses that a solved prompt adds."})

    def __post_init__(self) -> None:
        self.seen, self.asks = dict.fromkeys(self.keys, 0), 0

    def ask(self, count=None, exclude=()):
        left = [key for key in self.keys if key not in exclude]
        np.random.default_rng((self.seed, self.asks)).shuffle(left)
        self.asks += 1
        return sorted(left, key=self.seen.__getitem__)[: count or self.batch_size]

    def tell(self, keys, correct, drawn):
        for key, right, total in zip(keys, correct, drawn, strict=True):
            self.seen[key] += int(total + self.solved_as * (right == total > 0))

    def state_dict(self):
        """Return the counts, in the order of the keys, and what the random numbers depend on."""
        return {"seen": np.array([*self.seen.values()]), "asks": self.asks}

    def load_state_dict(self, state):
        self.seen = dict(zip(self.keys, state["seen"].tolist(), strict=True))
        self.asks = state["asks"]
