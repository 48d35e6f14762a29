"""Functions as graders, and graders as functions, in the forms of verl and TRL too."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from rollwise import loops
from rollwise.errors import ConfigError, PluginError, one_line
from rollwise.grading.grader import Columns, Grader, Row
from rollwise.grading.pool import WorkerGrader
from rollwise.grading.worker import Limits
from rollwise.plugins import load_plugin, plugin_folders, raised_in_plugin
from rollwise.sampling import Score

REFERENCES = ("answer", "ground_truth", "solution")
"""Names under which a function in TRL's form gets the reference, unless the data has them."""

KNOWN = {"prompt", "messages", "data_source", "extra_info", "row"}
"""What a function can be given whatever columns the data has."""


class FunctionGrader(WorkerGrader):
    """Gives each response what a user's function returns: a finite number, or verl's dictionary.

    The names of its arguments say what a function is given:

    - verl's: `f(data_source, solution_str, ground_truth, extra_info)`;
    - TRL's: `f(prompts, completions, **columns)`, of one completion, where the reference is each of
      `REFERENCES` and `answer_column` that the data has no column for;
    - else `f(response, answer)`, and further arguments by name: `prompt`, a text; `messages`, the
      whole conversation; `row`, all that is known of the problem; or a column of the data. Any
      form may have these, and `**columns` is given all.

    It may return a dictionary with a `score`, `acc` and further numbers (`rollwise.Score.of`).

    Instead of a function it may be a class, usually a dataclass whose fields are its settings: each
    worker makes an instance from `settings`, and calls its `grade`, in one of the same forms.
    Functions and methods may be asynchronous (`async def`).

    Both run in worker processes, so the result must depend on nothing but what they are given.

    Args:
        name: `module:function` or `module:Class`; the module may be in the current directory, which
            goes to the front of Python's path as with `python -m`.
        timeout: Seconds for one response; see `Limits`.
        workers: Processes; see `WorkerGrader`.
        settings: Arguments by name for a class.
        folder: Another folder that the module may be in.
        answer_column: Another name of the reference, for functions in TRL's form.

    Raises:
        ConfigError: There is no such function or class, or it does not take the settings.
    """

    def __init__(
        self,
        name: str,
        timeout: float = 10.0,
        workers: int | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: str | None = None,
        answer_column: str | None = None,
    ) -> None:
        limits = Limits(timeout)
        references = (*REFERENCES, *filter(None, [answer_column]))
        arguments = (name, plugin_folders(folder), dict(settings or {}), references)
        load = functools.partial(load_function, *arguments)
        self.columns = load().columns
        super().__init__(load, limits, workers)

    def submit(self, response: str, answer: str, row: Row | None = None) -> Future[float]:
        """Begin to grade a response by the answer, and what the function takes of the row."""
        given = {n: v for n, v in (row or {}).items() if {n, "*"} & self.columns.keys()}
        return self._pool.submit([response, answer, given])


def load_function(
    name: str, folders: Sequence[str], settings: Mapping[str, Any], references: Sequence[str] = ()
) -> "UserFunction":
    """Find a function or class, in `folders` first, to grade with; raises as `FunctionGrader`."""
    found = load_plugin(name, folders, "grading function")
    if inspect.isclass(found):
        try:
            found = getattr(found(**settings), "grade", None)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{name!r}: {error}") from error
        if not callable(found):
            raise ConfigError(f"{name!r} has no method `grade(response, answer)`")
    elif settings:
        raise ConfigError(f"{name!r} is a function, which takes no settings")
    return UserFunction(name, found, references)


class UserFunction:
    """A user's function, in any of the forms of `FunctionGrader`, as a `GradeFunction`.

    Attributes:
        columns: What it takes of a row.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], references: Sequence[str] = REFERENCES
    ) -> None:
        self._name, self._function, self._references = name, function, references
        parameters: list[inspect.Parameter] = []
        with contextlib.suppress(ValueError):  # some functions written in C have no signature
            parameters += inspect.signature(function).parameters.values()
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        named = {p.name: p.default is p.empty for p in parameters if p.kind in by_name}
        self._is_verls = {"solution_str", "ground_truth"} <= named.keys()
        self._is_trls = "completions" in named and not self._is_verls
        self._takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        plain = not (self._is_verls or self._is_trls)
        self._first = {p.name for p in parameters[:2]} if plain else set()
        self._names = named.keys() - self._first
        of_trl = {"prompts", "completions", *references} if self._is_trls else set()
        known = KNOWN | ({"solution_str", "ground_truth"} if self._is_verls else of_trl)
        every = {"*"} if self._takes_any or "row" in named else set()
        columns = {name: named[name] and name not in known for name in self._names}
        self.columns: Columns = columns | dict.fromkeys(every | (of_trl and {"prompt"}), False)

    def __call__(self, response: str, answer: str, row: Row | None = None) -> Score:
        """Grade; if no valid score is returned, the error names the function's line."""
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        where = f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
        called = getattr(self._function, "__name__", self._name)
        described = f"{self._name}: `{called}`{where}"
        try:
            value = self.call(response, answer, row or {})
        except Exception as error:
            said = raised_in_plugin(error) or f"{described} raised {one_line(error)}"
            raise PluginError(said) from error
        try:
            return Score.of(value)
        except ValueError as error:
            got = f"{type(value).__name__}: {value!r:.100}"
            raise PluginError(f"{described} must return {error}, got {got}") from None

    def call(self, response: str, answer: str, row: Row) -> Any:
        """Return what the function returns."""
        given: dict[str, Any] = {"data_source": "", **row}
        given["extra_info"] = row.get("extra_info") or {}
        if self._is_verls:
            given |= {"solution_str": response, "ground_truth": answer}
        elif self._is_trls:
            given = {**dict.fromkeys(self._references, answer), **given}
            given |= {"prompts": row.get("prompt", ""), "completions": response}
        if "row" in self._names:
            given["row"] = row
        names = given.keys() - self._first if self._takes_any else given.keys() & self._names
        chosen = {name: given[name] for name in names}
        if not self._is_trls:
            first = () if self._is_verls else (response, answer)
            return _finished(self._function(*first, **chosen))
        rewards = _finished(self._function(**{name: [value] for name, value in chosen.items()}))
        is_list = hasattr(rewards, "__len__") and not isinstance(rewards, Mapping)
        return rewards[0] if is_list and len(rewards) == 1 else rewards


def _finished(result: Any) -> Any:
    """Run a coroutine to its end."""
    return loops.run(result) if inspect.iscoroutine(result) else result


def as_compute_score(grader: Grader) -> Callable[..., float | dict[str, float]]:
    """Turn a grader into the function that verl calls for each response (`custom_reward_function`).

    It takes `(data_source, solution_str, ground_truth, extra_info)`; other keyword arguments are
    part of the grader's row. Several threads may call it at once.
    """

    def compute_score(
        data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **more: Any
    ) -> float | dict[str, float]:
        row = {**more, "data_source": data_source, "extra_info": extra_info}
        return Score.of(grader.scores([solution_str], [ground_truth], [row])[0]).told

    return compute_score


def as_reward_function(grader: Grader, answer_column: str = "answer") -> Callable[..., list[float]]:
    """Turn a grader into the function that TRL calls for a batch (`reward_funcs`).

    The reference answers are in the column `answer_column` of the data set; the grader's row has
    the others.
    """

    def reward(prompts: Any, completions: Sequence[Any], **columns: Any) -> list[float]:
        if answer_column not in columns:
            names = ", ".join(sorted(columns)) or "none"
            raise ValueError(f"the data set needs a column {answer_column!r}; it has {names}")
        responses = [_text_of(completion) for completion in completions]
        lists = {name: own for name, own in columns.items() if isinstance(own, list)}
        rows = [{name: own[i] for name, own in lists.items()} for i in range(len(responses))]
        for row, prompt in zip(rows, prompts, strict=True):
            text = _text_of(prompt)
            messages = [{"role": "user", "content": text}] if prompt is text else prompt
            row |= {"prompt": text, "messages": messages}
        rewards: list[float] = grader.grade(responses, columns[answer_column], rows).tolist()
        return rewards

    reward.__name__ = type(grader).__name__  # which TRL's logs show
    return reward


def _text_of(said: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a prompt or a completion, or of its last message."""
    if isinstance(said, str):
        return said
    content = said[-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
