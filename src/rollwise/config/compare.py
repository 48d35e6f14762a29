"""All settings of `rollwise compare`, and what plans have in common with it."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Self

from pydantic import Field, model_validator

from rollwise.config.base import CommandConfig, merge, nested
from rollwise.config.reading import make_config
from rollwise.config.sections import Section, differs
from rollwise.config.train import ENDS, TrainConfig
from rollwise.errors import ConfigError

FIRST_OF_CHOOSING = 1000
"""The first seed that settings are chosen on; methods are compared on those below it."""


class ChoosingSettings(Section):
    """How each method's own best settings are found, if `choose` names any."""

    seeds: int = Field(2, ge=1, le=4096)
    """Try candidates on this many seeds, from 1000 on. After each, the worse half of a
    method's candidates is left out (successive halving)."""
    share: float = Field(1.0, gt=0, le=1)
    """Run them for this share of `steps`, `tokens` or `seconds`. Short runs favour learning rates
    that fail later."""


class MethodsConfig(CommandConfig):
    """Settings of `rollwise train` for each of several methods."""

    base: dict[str, Any] = Field(default_factory=dict)
    """Give all methods these settings of `rollwise train`."""
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Give each method, by its name, these settings; they override those of `base`."""

    def _given(self, method: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given settings of a method's run."""
        own = {key: v for key, v in self.methods[method].items() if key not in ("choose", "seeds")}
        folder = {} if self.plugin_folder is None else {"plugin_folder": self.plugin_folder}
        return merge(folder, self.base, own, *layers)

    @staticmethod
    def _checked(method: str, given: Mapping[str, Any]) -> TrainConfig:
        try:
            return make_config(given)
        except ConfigError as error:
            raise ConfigError(f"method `{method}`: {error}") from None


class CompareConfig(MethodsConfig):
    """All settings of `rollwise compare`."""

    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Give each method, by its name, these settings; they override those of `base`. A method may
    also have its own `seeds` and `choose`."""
    only: list[str] = Field(default_factory=list)
    """Compare these of the methods; all by default."""
    rewards: str | None = None
    """Replay these recorded rewards in place of training: the folder of `rollwise prepare`, or a
    file with the rewards of each prompt's responses. Nothing is learned, and no model is needed."""
    baseline: str | None = None
    """Compare the others with this method; by default with the first."""
    target: float | None = Field(None, gt=0, le=1)
    """Compare what this held-out accuracy costs; by default the interquartile mean of the
    baseline's final accuracies."""
    seeds: int = Field(4, ge=1, le=FIRST_OF_CHOOSING)
    """Run each method this many times, with the seeds from 0 on; with `rewards`, replay it."""
    steps: int | None = Field(None, ge=1)
    """End each run after this many steps. Give one of `steps`, `tokens` and `seconds`. With
    `rewards`, by default as many as it takes to visit every prompt once."""
    tokens: int | None = Field(None, ge=1)
    """End each run after this many response tokens."""
    seconds: float | None = Field(None, gt=0)
    """End each run after this many seconds of sampling and learning."""
    evaluations: int = Field(16, ge=1, le=4096)
    """Evaluate each run this many times, evenly spaced over its steps or tokens; with `seconds`,
    `base.evaluation.every` decides."""
    choose: dict[str, list[Any]] = Field(default_factory=dict)
    """Try these values of settings: `"learner.learning_rate" = [1e-4, 2e-4]`. Each method takes the
    combination with which it is best; its own table `choose` is merged over this one."""
    choosing: ChoosingSettings = ChoosingSettings()
    workers: int | None = Field(None, ge=1, le=4096)
    """Run this many at a time; by default as many as processor cores and memory allow, and one on
    a GPU."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.methods:
            raise ValueError("give `methods` to compare, a table [methods.NAME] each")
        if not all(name.strip() for name in self.methods):
            raise ValueError("`methods` must be named, as [methods.NAME]; a name is empty")
        self._check_length()
        self._check_decided()
        self._check_names("only", self.only, list(self.methods))
        self._check_names("baseline", [self.baseline] if self.baseline else [], self.compared)
        for method in self.compared:
            self.seeds_of(method)
        return self

    def _check_length(self) -> None:
        given = [name for name in ENDS if getattr(self, name) is not None]
        found = " and ".join(f"`{name}`" for name in given) or "none"
        if self.rewards is not None and set(given) - {"steps"}:
            raise ValueError(
                f"with `rewards` give `steps`, or no length; got {found}, a length of training"
            )
        if self.rewards is None and len(given) != 1:
            raise ValueError(f"give one of `steps`, `tokens` and `seconds`; got {found}")

    def _check_decided(self) -> None:
        """Refuse settings of methods that are the comparison's, and others that nothing reads."""
        for place, given in (("base", self.base), *self.methods.items()):
            if found := sorted(given.keys() & {"seed", *ENDS}):
                raise ValueError(f"`{found[0]}` is the same for all methods; it is in `{place}`")
            if not isinstance(own := given.get("choose", {}), dict) or not all(
                isinstance(values, list) for values in own.values()
            ):
                raise ValueError(f"`choose` of `{place}` must be a table of lists; it is {own!r}")
        idle = ("choose", "choosing", "target", "evaluations", "workers")
        if self.rewards is not None and (found := [name for name in idle if differs(self, name)]):
            raise ValueError(f"`{found[0]}` is for training, and with `rewards` nothing is trained")

    def _check_names(self, key: str, names: list[str], among: list[str]) -> None:
        for name in set(names) - set(among):
            known = ", ".join(f"`{method}`" for method in among)
            raise ValueError(f"`{key}` must be one of the methods {known}; it is {name!r}")

    @property
    def compared(self) -> list[str]:
        """The methods that are compared."""
        return [method for method in self.methods if not self.only or method in self.only]

    def seeds_of(self, method: str) -> int:
        """Return how many runs a method has, at least one."""
        seeds = self.methods[method].get("seeds", self.seeds)
        if type(seeds) is not int or not 1 <= seeds <= FIRST_OF_CHOOSING:
            raise ValueError(
                f"`methods.{method}.seeds` must be from 1 to {FIRST_OF_CHOOSING}; it is {seeds!r}"
            )
        return seeds

    def candidates(self, method: str) -> list[dict[str, Any]]:
        """List the combinations of values that a method chooses from: setting -> value."""
        own = self.methods[method].get("choose", {})
        grid: Mapping[str, Sequence[Any]] = {**self.choose, **own}
        for name, values in grid.items():
            if not values:
                raise ConfigError(f"`choose`: `{name}` has no values to choose from")
        return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]

    def run_settings(
        self, method: str, seed: int, chosen: Mapping[str, Any], choosing: bool = False
    ) -> dict[str, Any]:
        """Return the given settings of one run, without defaults.

        `chosen` is one of the method's `candidates`; runs of `choosing` only find the best of them,
        and may be shorter.
        """
        share = self.choosing.share if choosing else 1.0
        length = self.length(share, 1 if choosing else self.evaluations)
        return self._given(method, *map(nested, chosen.items()), {"seed": seed, **length})

    def each(self, chosen: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, TrainConfig]:
        """Return the settings of each method's runs, with the values that it chose."""
        values = {method: (chosen or {}).get(method, {}) for method in self.compared}
        return {m: self._checked(m, self.run_settings(m, 0, own)) for m, own in values.items()}

    def check_methods(self) -> None:
        """Check the settings of every method, with each candidate; an error names the method."""
        for method in self.compared:
            for chosen in self.candidates(method):
                self._checked(method, self.run_settings(method, 0, chosen))

    def length(self, share: float, evaluations: int) -> dict[str, Any]:
        """Say when a run ends, and when it is evaluated."""
        if self.steps is not None:
            steps = max(1, round(share * self.steps))
            return {"steps": steps, "evaluation": {"every": max(1, steps // evaluations)}}
        if self.tokens is not None:
            tokens = max(1, round(share * self.tokens))
            evaluated = {"every": 0, "every_tokens": max(1, tokens // evaluations)}
            return {"tokens": tokens, "evaluation": evaluated}
        return {} if self.seconds is None else {"seconds": share * self.seconds}
