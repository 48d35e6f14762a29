"""All settings of `rollwise plan`."""

from functools import reduce
from typing import Any, Self

from pydantic import Field, model_validator

from rollwise.config.base import CommandConfig, merge
from rollwise.config.reading import make_config
from rollwise.config.sections import AT_A_TIME, Section
from rollwise.config.train import TrainConfig
from rollwise.errors import ConfigError

SHORTEST_TIME, LONGEST_TIME = 1e-9, 1e6
"""Seconds of a token, or before the first one, beyond these are a slip; the clock of a simulation
is not exact enough for both at once."""


class PassRateSettings(Section):
    """How often the model solves each prompt: from a file, or from a Beta distribution."""

    file: str | None = None
    """A parquet or JSON Lines file with a column `pass_rate`, such as the `prepared.parquet` of
    `rollwise prepare`; its columns `key`, `level` and `drawn` are used if it has them."""
    resample: bool = True
    """Where the file says with how many responses a pass rate was measured (`drawn`): take a pass
    rate that may be behind it. Measured rates scatter more than true ones: too many are 0 or 1."""
    alpha: float | None = Field(None, ge=1e-3, le=1e6)
    """In place of a file: α of a Beta distribution of pass rates."""
    beta: float | None = Field(None, ge=1e-3, le=1e6)
    """Its β; the mean pass rate is α / (α + β)."""
    prompts: int = Field(1024, ge=1, le=AT_A_TIME)
    """How many prompts have the pass rates of that distribution."""


class PriceSettings(Section):
    """How long responses are, and how fast they are drawn."""

    median: float | None = Field(None, gt=0)
    """Median length of correct responses before they are cut, in tokens."""
    sigma: float | None = Field(None, ge=0, le=10)
    """Standard deviation of the logarithm of these lengths; 0.7 by default, 0 makes all alike."""
    longest: int | None = Field(None, ge=1, le=2**24)
    """Responses are cut here; by default at each method's `engine.max_new_tokens`."""
    incorrect_factor: float | None = Field(None, gt=0)
    """How many times as long incorrect responses are; 1 by default."""
    slots: int | None = Field(None, ge=1, le=AT_A_TIME)
    """Responses drawn at a time; by default each method's `engine.batch_size`."""
    seconds_per_token: float = Field(0.02, ge=0, le=LONGEST_TIME)
    """Seconds that a token takes in its slot."""
    seconds_per_busy_slot: float = Field(0.0, ge=0, le=LONGEST_TIME)
    """Seconds that it takes more for each slot that is busy then: 0 for hardware on which a larger
    batch is not slower."""
    prefill: float = Field(0.0, ge=0, le=LONGEST_TIME)
    """Seconds that a draw takes in its slot before its first token."""

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        for name in ("seconds_per_token", "seconds_per_busy_slot"):
            found = getattr(self, name)
            if found and found < SHORTEST_TIME:
                raise ValueError(f"`{name}` must be 0 or at least {SHORTEST_TIME:g}; it is {found}")
        if not self.seconds_per_token and not self.seconds_per_busy_slot:
            raise ValueError(
                "`seconds_per_token` may be 0 only if `seconds_per_busy_slot` is above 0; it is 0"
            )
        return self


class PlanConfig(CommandConfig):
    """All settings of `rollwise plan`."""

    base: dict[str, Any] = Field(default_factory=dict)
    """Settings of `rollwise train` that all methods share."""
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of each method, by its name; they are laid over those of `base`."""
    rewards: str | None = None
    """Recorded rewards in place of `pass_rates`: the folder of `rollwise prepare`, or a file with
    the rewards of each prompt's responses, as `rollwise compare` takes it. Their lengths, if they
    are there and `prices.median` is not given, are those of the responses that are planned with."""
    pass_rates: PassRateSettings = PassRateSettings()
    prices: PriceSettings = PriceSettings()
    steps: int = Field(32, ge=2, le=AT_A_TIME)
    """Steps that figures are averaged over."""
    warmup: int = Field(16, ge=0, le=AT_A_TIME)
    """Steps before these, which are left out: in them beliefs learn the pass rates."""
    seed: int = Field(0, ge=0)
    """Seed of everything random."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.methods:
            raise ValueError("give `methods` to plan, a table [methods.NAME] each")
        rates, prices = self.pass_rates, self.prices
        given = [f"`{name}`" for name in ("alpha", "beta") if getattr(rates, name) is not None]
        if self.rewards is not None and (given or rates.file is not None):
            raise ValueError("give either `rewards` or `pass_rates`; given are both")
        wanted = 0 if rates.file is not None or self.rewards is not None else 2
        if len(given) != wanted:
            found = " and ".join((["`file`"] if rates.file is not None else []) + given) or "none"
            raise ValueError(
                f"`pass_rates`: give either a `file`, or both `alpha` and `beta`; given is {found} "
                "(or recorded `rewards`)"
            )
        if prices.median is None and self.rewards is None:
            raise ValueError("`prices`: give `median`, the median length of responses in tokens")
        unused = [
            name for name in ("sigma", "incorrect_factor") if getattr(prices, name) is not None
        ]
        if prices.median is None and unused:
            raise ValueError(f"`prices.{unused[0]}` goes with `prices.median`, which is not given")
        return self

    def method(self, name: str) -> TrainConfig:
        """Return the settings of a run by a method.

        Raises:
            ConfigError: They are not settings of a run; the message names the method.
        """
        limits: dict[str, Any] = {"seed": self.seed}
        if self.plugin_folder is not None:
            limits["plugin_folder"] = self.plugin_folder
        settings: dict[str, Any] = reduce(merge, (self.base, self.methods[name], limits), {})
        try:
            return make_config(settings)
        except ConfigError as error:
            raise ConfigError(f"method `{name}`: {error}") from None
