"""Load the problems of a run: read them, hold some out, and encode their prompts."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollwise.config import TrainConfig, is_made
from rollwise.config.step import wanted_columns
from rollwise.errors import ConfigError, DataError
from rollwise.records.fingerprints import of_problems, of_settings
from rollwise.tasks import Problem, check_references, make_from_source, read_source
from rollwise.tasks.problem import problem_key
from rollwise.tasks.running_sums import HELDOUT_SEED

if TYPE_CHECKING:  # which loads transformers
    from rollwise.training.build import Built

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunData:
    """The problems of a run.

    Attributes:
        train: Problems to train on.
        heldout: Problems to evaluate on; none of them is in `train`.
        prompts: Key -> token ids, for both.
    """

    train: list[Problem]
    heldout: list[Problem]
    prompts: dict[str, list[int]]


def load_data(built: "Built[TrainConfig]", read: tuple[list[Problem], list[Problem]]) -> RunData:
    """Encode the problems of a run, those that `read_both` returned; log what is left out."""
    train, heldout = (built.encode(problems) for problems in read)
    for role, encoded in (("training", train), ("held-out", heldout)):
        if encoded.too_long:
            log.warning("%d %s prompts are over %d tokens", encoded.too_long, role, encoded.limit)
    check_batch(built.config, len(train.problems))
    return RunData(train.problems, heldout.problems, train.token_ids | heldout.token_ids)


def fingerprints(
    config: TrainConfig, read: tuple[list[Problem], list[Problem]]
) -> dict[str, dict[str, str]]:
    """Return fingerprints of what a run reads again when it resumes; `read` is of `read_both`."""
    train, heldout = map(of_problems, read)
    return {
        f"the training problems in {config.data.train}": train,
        f"the held-out problems in {config.data.heldout or config.data.train}": heldout,
        **of_settings(config, weights=config.model.lora_rank > 0),  # else the checkpoint's
    }


def check_batch(config: TrainConfig, problems: int) -> None:
    """Check that there are as many training problems as a step has prompts."""
    if config.prompts.batch_size > problems:
        raise ConfigError(
            f"there are {problems} training problems, fewer than the "
            f"{config.prompts.batch_size} prompts of a step: set `prompts.batch_size` to at most "
            f"{problems} (--prompts.batch_size {problems})"
        )


def read_both(config: TrainConfig) -> tuple[list[Problem], list[Problem]]:
    """Read training and held-out problems, no problem in both."""
    data, count = config.data, config.evaluation.problems
    made = is_made(data.train)
    if not data.heldout and not made:
        return _set_apart(_read(config, data.train, data.split), count)
    heldout = _read(config, data.heldout or data.train, data.heldout_split)
    keys = frozenset(problem.key for problem in heldout)
    shown = {problem_key(problem.messages) for problem in heldout}  # keys may be a file's own
    heldout = heldout[:count]
    if made:
        return make_from_source(data.train, data, data.problems, config.seed, keys | shown), heldout
    problems = _read(config, data.train, data.split)
    train = [problem for problem in problems if problem_key(problem.messages) not in shown]
    if twice := {problem.key for problem in train} & {problem.key for problem in heldout}:
        files = f"{data.train} and {data.heldout}"
        raise DataError(f"{files} have different problems of the key {min(twice)!r}")
    if len(train) < len(problems):
        left_out = len(problems) - len(train)
        log.warning("%d problems of %s are held out, and not trained on", left_out, data.train)
    if not train:
        raise DataError(f"every problem of {data.train} is held out: {data.heldout} holds them too")
    return train, heldout


def _read(config: TrainConfig, source: str, split: str) -> list[Problem]:
    """Read the problems of a source; those that are made are the held-out ones."""
    if is_made(source):
        count = config.evaluation.problems
        return make_from_source(source, config.data, count, HELDOUT_SEED)
    found = read_source(source, config.data, split, wanted_columns(config))
    log.info("%s: %s", source, found.describe())
    if not found.problems:
        raise DataError(f"{source} holds no problem that can be used: {found.describe()}")
    check_references(found.problems, config.grading.make(), source)
    return found.problems


def _set_apart(problems: list[Problem], count: int) -> tuple[list[Problem], list[Problem]]:
    """Hold out at most a tenth of the problems, by text: all runs hold out the same ones."""
    count = min(count, len(problems) // 10)
    if count == 0:
        raise DataError(
            f"{len(problems)} problems are too few to hold some out; give `data.heldout` a file"
        )
    texts = [problem_key(problem.messages) for problem in problems]  # keys may be a file's own
    heldout = set(sorted(set(texts))[:count])
    parts: tuple[list[Problem], list[Problem]] = ([], [])
    for text, problem in zip(texts, problems, strict=True):
        parts[text in heldout].append(problem)
    return parts
