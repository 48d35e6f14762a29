"""Tasks of the library reasoning-gym: which are named, their entries, and their scores."""

import difflib
import functools
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollwise.errors import ConfigError, DataError, one_line
from rollwise.releases import unmet

PREFIX = "reasoning-gym:"
"""What the name of a source begins with."""

MOST_REFUSED = 0.05
"""The share of entries, refused by the task's own verifier, from which a task is refused."""

UNREPEATABLE = (
    *("isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note"),
    "word_ladder",
)
"""Tasks of 0.1.25 whose problems depend on Python's hash seed: each process makes others."""


@dataclass(frozen=True)
class TaskSpec:
    """A task of reasoning-gym: its name, its share of the problems, and its own settings."""

    name: str
    weight: float = 1.0
    config: Mapping[str, Any] = field(default_factory=dict)

    def entries(self, seed: int, most: int, tagged: bool) -> Iterator[tuple[str, str]]:
        """Yield up to `most` questions, each with the JSON that `score` grades by.

        The task's seed is a hash of `seed`, its name and its settings. Entries whose own answer
        its verifier refuses are left out.

        Raises:
            ConfigError: It does not take its settings.
            DataError: Its verifier refuses more than `MOST_REFUSED` of its own answers.
        """
        config = json.dumps(self.config, sort_keys=True)
        named = f"{seed} {self.name} {config}".encode()
        own = int.from_bytes(hashlib.blake2b(named, digest_size=4).digest()) >> 1
        try:
            dataset = _dataset(self.name, json.dumps({**self.config, "seed": own, "size": most}))
        except Exception as error:  # its own code checks, by assertions too
            raise ConfigError(f"reasoning-gym's task {self.name}: {one_line(error)}") from error
        refused = 0
        for i in range(most):
            entry, said = dataset[i], ""
            try:
                kept = {name: entry[name] for name in ("question", "answer", "metadata")}
                about = {"task": self.name, "config": self.config, "tagged": tagged}
                row = json.dumps({**about, "entry": kept}, ensure_ascii=False)
                value = score(f"<answer>{entry['answer']}</answer>", row)
                said = "" if value >= 1 else f"a score of {value:.3g}"
            except Exception as error:
                said = one_line(error)
            if not said:
                yield entry["question"], row
                continue
            refused += 1
            if refused > 1 + MOST_REFUSED * (i + 1):
                raise DataError(
                    f"reasoning-gym's task {self.name}: its verifier refuses its own answer to "
                    f"{refused} of {i + 1} problems ({entry['answer']!r:.80}: {said})"
                )


def score(response: str, row: str) -> float:
    """Return the score of a response by `score_answer` of the task that `row` is an entry of.

    The answer is what the last `<answer>` encloses. Without that it is the whole response, or
    none if the model was asked for `<answer>`.
    """
    from reasoning_gym.utils import extract_answer

    about = json.loads(row)
    answer = extract_answer(response)
    if answer is None and not about["tagged"]:
        answer = response.strip()
    dataset = _dataset(about["task"], json.dumps(about["config"]))
    return float(dataset.score_answer(answer, about["entry"]))


@functools.lru_cache(maxsize=256)
def _dataset(name: str, config: str) -> Any:
    from reasoning_gym.factory import create_dataset

    # A task without a seed takes one from the clock; scores do not depend on it.
    return create_dataset(name, **{"seed": 0, **json.loads(config)})


def require() -> None:
    """Raise a ConfigError that says how to install reasoning-gym, unless it is there."""
    if reason := unmet("reasoning-gym"):
        raise ConfigError(f"`{PREFIX}…` cannot be read: {reason}")


def system_prompt(form: str) -> str:
    """Return reasoning-gym's system prompt of a name; "" for `plain`; a ConfigError if unknown."""
    from reasoning_gym.utils import SYSTEM_PROMPTS

    if form not in (known := {"plain": "", **SYSTEM_PROMPTS}):
        raise ConfigError(
            f"`data.reasoning_gym_prompt` must be one of {', '.join(known)}, got {form!r}"
        )
    return str(known[form])


def find_tasks(source: str) -> list[TaskSpec]:
    """Return the tasks that a source names: `chain_sum,gcd`, `chain_sum=2,gcd=1`, or a file.

    Raises:
        ConfigError: reasoning-gym is missing, or a task, a setting or a weight is not right.
    """
    require()
    named = source.removeprefix(PREFIX)
    if Path(named).suffix in (".yaml", ".yml", ".json", ".toml"):
        specs = _read(Path(named).expanduser())
    else:
        specs = [_parse(part.strip(), source) for part in named.split(",")]
    for spec in specs:
        _check(spec, source)
    return specs


def _parse(part: str, source: str) -> TaskSpec:
    name, equals, weight = part.partition("=")
    try:
        return TaskSpec(name.strip(), float(weight) if equals else 1.0)
    except ValueError:
        raise ConfigError(f"{source}: the weight of {name} must be a number: {weight!r}") from None


def _read(path: Path) -> list[TaskSpec]:
    """Read reasoning-gym's file of `datasets`, a list of {name, weight, config}."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
        return [
            TaskSpec(**{"weight": 1.0, **each, "config": each.get("config") or {}})
            for each in found["datasets"]
        ]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path} must have `datasets`, a list of {{name, weight, config}}: {one_line(error)}"
        ) from None


def _check(spec: TaskSpec, source: str) -> None:
    from reasoning_gym.factory import DATASETS

    if spec.name not in DATASETS or spec.name == "composite":
        near = difflib.get_close_matches(str(spec.name), DATASETS, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{source}: reasoning-gym has no task {spec.name!r}{meant}")
    if spec.name in UNREPEATABLE:
        raise ConfigError(f"{source}: {spec.name} makes other problems in each process")
    if not (isinstance(spec.weight, int | float) and 0 < spec.weight < float("inf")):
        raise ConfigError(f"{source}: the weight of {spec.name} must be above 0: {spec.weight!r}")
    known = set(DATASETS[spec.name][1].__dataclass_fields__) - {"seed", "size"}
    for name in spec.config:
        if name in ("seed", "size"):
            ours = {"seed": "`seed`", "size": "`data.problems`"}[name]
            raise ConfigError(f"{source}: {spec.name} must not set {name}, which is {ours} here")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(sorted(known))}"
            raise ConfigError(f"{source}: {spec.name} has no setting {name!r}{meant}")
