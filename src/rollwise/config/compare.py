"""All settings of `rollwise compare`, and what plans have in common with it."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import product
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from rollwise.config.base import CommandConfig, merge, nested
from rollwise.config.reading import make_config
from rollwise.config.sections import Few, Section, differs, settings_of
from rollwise.config.train import ENDS, TrainConfig
from rollwise.errors import ConfigError
from rollwise.methods import METHODS
from rollwise.sampling.checks import Above0, Count

FIRST_OF_CHOOSING = 1000
"""The first seed that settings are chosen on; methods are compared on those below it."""


class ChoosingSettings(Section):
    """How each method's own best settings are found, if `choose` names any."""

    seeds: Few = 2
    """Seeds, from 1000 on, after each of which the worse half of a method's combinations is dropped
    (successive halving)."""
    share: Annotated[float, Gt(0), Le(1)] = 1.0
    """Length of these runs, as a share of the others'; short ones favour rates that fail later."""


class MethodsConfig(CommandConfig):
    """Settings of `rollwise train` for each of several methods."""

    base: dict[str, Any] = field(default_factory=dict)
    """Settings of `rollwise train` for all methods."""
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings of each method, by its name; they override `base`. One that is named as a value of
    `method` has that. A list of such names stands for tables without settings."""

    def _given(self, method: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
        own = {key: v for key, v in self.methods[method].items() if key not in ("choose", "seeds")}
        folder = {} if self.plugin_folder is None else {"plugin_folder": self.plugin_folder}
        named = {"method": method} if method in METHODS else {}
        return merge(folder, self.base, named, own, *layers)

    @staticmethod
    def _checked(method: str, given: Mapping[str, Any]) -> TrainConfig:
        try:
            return make_config(given)
        except ConfigError as error:
            raise ConfigError(f"method `{method}`: {error}") from None


class CompareConfig(MethodsConfig):
    """All settings of `rollwise compare`."""

    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings of each method, by its name, over `base`; also its own `seeds` and `choose`. One
    that is named as a value of `method` has that. A list of such names stands for tables without
    settings."""
    only: list[str] = field(default_factory=list)
    """Methods to compare; default: all."""
    rewards: str | None = None
    """Recorded rewards to replay in place of training: the folder of `rollwise prepare` or of a
    run, or a file with the rewards of each prompt's responses."""
    baseline: str | None = None
    """Method that the others are compared with; default: the first."""
    target: Annotated[float, Gt(0), Le(1)] | None = None
    """Held-out accuracy whose cost is compared; default: the baseline's final interquartile
    mean."""
    seeds: Annotated[int, Ge(1), Le(FIRST_OF_CHOOSING)] = 4
    """Runs of each method, with seeds 0, 1, ...; with `rewards`, replays."""
    steps: Count | None = None
    """Steps of each run: give this, `tokens` or `seconds`. With `rewards`, by default as many as
    visit every prompt once."""
    tokens: Count | None = None
    """Response tokens of each run."""
    seconds: Above0 | None = None
    """Seconds of sampling and learning of each run."""
    evaluations: Few = 16
    """Evaluations of each run, evenly spaced; with `seconds`, `base.evaluation.every` decides."""
    choose: dict[str, list[Any]] = field(default_factory=dict)
    """Values to try for settings, such as `"learner.learning_rate" = [1e-4, 2e-4]`; each method
    keeps its best combination."""
    choosing: ChoosingSettings
    workers: Few | None = None
    """Runs at a time; default: as many as usable cores and memory allow, and one on a GPU."""

    def _check(self) -> None:
        if not self.methods:
            raise ValueError(
                "give `methods` to compare, a table [methods.NAME] each (docs/compare.md)"
            )
        self._check_length()
        self._check_methods()
        named = ("only", self.only, self.methods), ("baseline", [self.baseline], self.compared)
        for key, names, among in named:
            if unknown := {*filter(None, names)} - {*among}:
                known = ", ".join(f"`{method}`" for method in among)
                raise ValueError(
                    f"`{key}` must be one of the methods {known}; it is {unknown.pop()!r}"
                )

    def _check_length(self) -> None:
        given = [f"`{name}`" for name in ENDS if getattr(self, name) is not None]
        if self.rewards is None and len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"give one of `steps`, `tokens` and `seconds`; got {found}")
        idle = ("tokens", "seconds", "choose", "choosing", "target", "evaluations", "workers")
        if self.rewards is not None and (found := next((n for n in idle if differs(self, n)), "")):
            raise ValueError(f"`{found}` is for training, and with `rewards` nothing is trained")

    def _check_methods(self) -> None:
        """Refuse settings of methods that are the comparison's, and malformed ones."""
        wrong, own = dict[str, str](), settings_of(CompareConfig)
        methods = ((f"methods.{name}", given) for name, given in self.methods.items())
        for place, given in (("base", self.base), *methods):
            if found := sorted(given.keys() & {"seed", *ENDS}):
                raise ValueError(f"`{found[0]}` is the same for all methods; it is in `{place}`")
            for key in given.keys() & {"choose", "seeds"}:
                own[key].read(f"{place}.{key}", given[key], wrong)
        if wrong:
            raise ValueError("\n".join(wrong.values()))

    @property
    def compared(self) -> list[str]:
        """The methods that are compared."""
        return [method for method in self.methods if not self.only or method in self.only]

    def seeds_of(self, method: str) -> int:
        """Return how many runs a method has, at least one."""
        return int(self.methods[method].get("seeds", self.seeds))

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
        """Return the settings of when a run ends, and when it is evaluated."""
        if self.steps is not None:
            steps = max(1, round(share * self.steps))
            return {"steps": steps, "evaluation": {"every": max(1, steps // evaluations)}}
        if self.tokens is not None:
            tokens = max(1, round(share * self.tokens))
            evaluated = {"every": 0, "every_tokens": max(1, tokens // evaluations)}
            return {"tokens": tokens, "evaluation": evaluated}
        return {} if self.seconds is None else {"seconds": share * self.seconds}
