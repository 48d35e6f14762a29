"""All settings of `rollwise plan`."""

from typing import Self

from pydantic import Field, model_validator

from rollwise.config.compare import MethodsConfig
from rollwise.config.sections import AT_A_TIME, Section, differs
from rollwise.config.train import TrainConfig


class PassRateSettings(Section):
    """How often the model solves each prompt, where no rewards are recorded."""

    alpha: float | None = Field(None, ge=1e-3, le=1e6)
    """Let pass rates follow a Beta distribution with this α."""
    beta: float | None = Field(None, ge=1e-3, le=1e6)
    """Give that distribution this β; the mean pass rate is α / (α + β)."""
    prompts: int = Field(1024, ge=1, le=AT_A_TIME)
    """Take this many prompts from that distribution."""


class PriceSettings(Section):
    """How long responses are, and how fast they are drawn."""

    median: float | None = Field(None, gt=0)
    """Give correct responses this median length before they are cut, in tokens."""
    sigma: float | None = Field(None, ge=0, le=10)
    """Give the logarithm of these lengths this standard deviation; 0.7 by default (0: all
    alike)."""
    longest: int | None = Field(None, ge=1, le=2**24)
    """Cut responses at this length; by default at each method's `engine.max_new_tokens`, and
    recorded ones not at all."""
    incorrect_factor: float | None = Field(None, gt=0)
    """Make incorrect responses this many times as long; 1 by default."""
    slots: int | None = Field(None, ge=1, le=AT_A_TIME)
    """Draw this many responses at a time; by default each method's `engine.batch_size`."""
    seconds_per_token: float = Field(0.02, ge=1e-9, le=1e6)
    """Take this many seconds for a token in its slot."""


class PlanConfig(MethodsConfig):
    """All settings of `rollwise plan`."""

    rewards: str | None = None
    """Take pass rates from these recorded rewards: the folder of `rollwise prepare`, or a file with
    the rewards of each prompt's responses, as `rollwise compare` takes it. If lengths are
    recorded and `prices.median` is not given, planned responses have these lengths."""
    pass_rates: PassRateSettings = PassRateSettings()
    prices: PriceSettings = PriceSettings()
    steps: int = Field(32, ge=2, le=AT_A_TIME)
    """Average figures over this many steps."""
    warmup: int = Field(16, ge=0, le=AT_A_TIME)
    """Leave out this many earlier steps, in which beliefs learn the pass rates."""
    seed: int = Field(0, ge=0)
    """Seed everything random with this."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.methods:
            raise ValueError("give `methods` to plan, a table [methods.NAME] each")
        rates, prices = self.pass_rates, self.prices
        given = [f"`{name}`" for name in ("alpha", "beta") if getattr(rates, name) is not None]
        if len(given) != (2 if self.rewards is None else 0):
            found = " and ".join((["`rewards`"] if self.rewards is not None else []) + given)
            raise ValueError(
                "give either recorded `rewards`, or both `alpha` and `beta` of `pass_rates`; got "
                f"{found or 'none'}"
            )
        if self.rewards is not None and differs(rates, "prompts"):
            raise ValueError("`pass_rates.prompts` goes with `alpha` and `beta`, not `rewards`")
        if prices.median is None and self.rewards is None:
            raise ValueError("`prices`: give `median`, the median length of responses in tokens")
        for name in ("sigma", "incorrect_factor"):
            if prices.median is None and getattr(prices, name) is not None:
                raise ValueError(f"`prices.{name}` needs `prices.median`, which is not given")
        return self

    def method(self, name: str) -> TrainConfig:
        """Return the settings of a method's run; an error names the method."""
        return self._checked(name, self._given(name, {"seed": self.seed}))
