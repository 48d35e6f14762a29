"""All settings of `rollwise plan`."""

from typing import Annotated

from annotated_types import Ge, Le

from rollwise.config.compare import MethodsConfig
from rollwise.config.sections import Held, Section, differs
from rollwise.config.step import of_recipe
from rollwise.config.train import TrainConfig
from rollwise.sampling.checks import Above0


class PassRateSettings(Section):
    """How often the model solves each prompt, where no rewards are recorded."""

    alpha: Annotated[float, Ge(1e-3), Le(1e6)] | None = None
    """α of the Beta distribution of pass rates."""
    beta: Annotated[float, Ge(1e-3), Le(1e6)] | None = None
    """β of that distribution; the mean pass rate is α / (α + β)."""
    prompts: Held = 1024
    """Prompts drawn from that distribution."""


class PriceSettings(Section):
    """How long responses are, and how fast they are drawn."""

    median: Above0 | None = None
    """Median tokens of correct responses, before they are truncated."""
    sigma: Annotated[float, Ge(0), Le(10)] | None = None
    """Standard deviation of the logarithm of these lengths; default: 0.7 (0: all equal)."""
    longest: Annotated[int, Ge(1), Le(2**24)] | None = None
    """Tokens at which responses are truncated; default: each method's `engine.max_new_tokens`."""
    incorrect_factor: Above0 | None = None
    """Length of incorrect responses, as a multiple of that of correct ones; default: 1."""
    slots: Held | None = None
    """Responses drawn at a time; default: each method's `engine.batch_size`."""
    seconds_per_token: Annotated[float, Ge(1e-9), Le(1e6)] = 0.02
    """Seconds per generated token of one sequence."""


class PlanConfig(MethodsConfig):
    """All settings of `rollwise plan`."""

    rewards: str | None = None
    """Recorded rewards that give the pass rates, as for `rollwise compare`; recorded lengths are
    used unless `prices.median` is given."""
    pass_rates: PassRateSettings
    prices: PriceSettings
    steps: Annotated[int, Ge(2), Le(2**20)] = 32
    """Simulated steps over which figures are averaged."""
    warmup: Annotated[int, Ge(0), Le(2**20)] = 16
    """Steps before them that are left out, in which beliefs learn the pass rates."""
    seed: int = of_recipe("seed")

    def _check(self) -> None:
        if not self.methods:
            raise ValueError("give `methods` to plan, a table [methods.NAME] each (docs/plan.md)")
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

    def method(self, name: str) -> TrainConfig:
        """Return the settings of a method's run; an error names the method."""
        return self._checked(name, self._given(name, {"seed": self.seed}))
