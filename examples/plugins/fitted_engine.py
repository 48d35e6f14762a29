"""An engine of one's own: the built-in one with a smaller batch for long responses.

`open` may return any `rollwise.engines.Engine`.
"""

from dataclasses import dataclass, field, replace

from rollwise.engines import ENGINES, Engine, EngineInputs, EngineSettings


@dataclass(frozen=True)
class FittedEngine(EngineSettings):
    """Draws as many responses at a time as `tokens` in memory allow."""

    needs_model = True

    tokens: int = field(default=16_384, metadata={"help": "Tokens of all responses in flight."})

    def open(self, inputs: EngineInputs) -> Engine:
        """Open the built-in engine with the batch size that fits."""
        fitting = max(1, self.tokens // inputs.context)
        fitted = replace(inputs, batch_size=min(inputs.batch_size, fitting))
        return ENGINES["transformers"]().open(fitted)
