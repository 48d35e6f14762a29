"""What `rollwise doctor FILE` finds of a run's problems and its grader."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from rollwise.config import TrainConfig
from rollwise.config.data import is_made
from rollwise.config.model import BUILT_IN_NAMES
from rollwise.config.step import make_sampler
from rollwise.errors import RollwiseError
from rollwise.grading.settings import make_grader
from rollwise.plugins import naming_plugins
from rollwise.sampling.score import acc_of
from rollwise.tasks import Problem
from rollwise.tasks.columns import feature_columns
from rollwise.tasks.tables import is_path

Found = tuple[str, Literal["works", "broken"], str]
"""Name, state and detail of a check."""


def check_problems(run: TrainConfig) -> Iterator[Found]:
    """Read, hold out and encode the problems of a run, and grade the first, as the run would."""
    from rollwise.training.data import check_batch, load_data, read_both

    sources = [run.data.train, run.data.heldout or run.data.train]
    if not all(is_made(source) or is_path(source) for source in sources):
        return  # of the hub, or of an environment
    try:
        train, heldout = read_both(run)
        detail = f"{len(train):,} to train on, {len(heldout):,} held out"
        if run.model.path in BUILT_IN_NAMES or Path(run.model.path).expanduser().is_dir():
            from rollwise.models.saved import describe_saved
            from rollwise.training.build import LocalBackend, build

            built = build(run)
            built.backend = LocalBackend(run, *describe_saved(run.model))
            data = load_data(built, (train, heldout))
            keys = [problem.key for problem in data.train]
            with naming_plugins():
                make_sampler(run, keys, feature_columns(data.train, data.prompts))
            detail += f"; the longest prompt has {max(map(len, data.prompts.values())):,} tokens"
        check_batch(run, len(train))
        yield ("problems", "works", detail)
        yield _check_grader(run, train[0])
    except RollwiseError as error:
        yield ("problems", "broken", str(error))


FORMS = ("{}", "\\boxed{{{}}}", "= {}", "#### {}", "<answer>{}</answer>")
"""Responses that many graders find the answer in."""


def _check_grader(run: TrainConfig, problem: Problem) -> Found:
    """Grade a reference answer, in the usual forms, and an empty response."""
    kind, answer = run.grading.type, problem.answer
    functions = ", ".join(getattr(run.grading, "functions", ()))
    name = str(getattr(run.grading, "function", "") or functions or kind)
    shown = f"the reference answer {answer!r:.60}"
    forms = [] if kind in ("code", "environment") else [form.format(answer) for form in FORMS]
    with make_grader(run.grading, run.data, run.plugin_folder) as grader:
        count = 1 + len(forms)
        scores = grader.scores(["", *forms], [answer] * count, [problem.row] * count)
    empty, *of_forms = [acc_of(score) > run.grading.positive_threshold for score in scores]
    correct = [form for form, right in zip(forms, of_forms, strict=True) if right]
    if grader.failures:
        detail = f"it failed on {grader.failures} of {count} responses; the first line says why"
        return (name, "broken", detail)
    if empty:
        return (name, "broken", f"an empty response is correct by {shown}")
    said = f"{correct[0]!r:.60} is correct" if correct else f"no usual form of {shown} is correct"
    wrong = forms and not correct and kind in ("math", "exact")  # others may want any form
    detail = f"{said}; an empty response is not" if forms else "an empty response is not correct"
    return (name, "broken" if wrong else "works", detail)
