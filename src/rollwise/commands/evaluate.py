"""`rollwise evaluate`: evaluate a model on benchmarks, with 95 % intervals."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rollwise.commands.drawing import (
    Found,
    Responses,
    draw_all,
    portions,
    problem_file,
    read_responses,
)
from rollwise.commands.folder import resolve, seal
from rollwise.commands.show import evaluation_tables, show
from rollwise.config import EvaluateConfig, make_settings
from rollwise.config.sections import settings_of
from rollwise.config.step import wanted_columns
from rollwise.errors import DataError, EngineError, RunError
from rollwise.records import RunFolder
from rollwise.reports.evaluation import Answered, write_evaluation_report
from rollwise.statistics import (
    ProblemResult,
    as_json,
    compare,
    figures_of,
    final_answers,
    tables_of,
    with_votes,
)
from rollwise.tasks import (
    Benchmark,
    Problem,
    ProblemSet,
    check_references,
    find_benchmarks,
    read_benchmark,
    read_problems,
)
from rollwise.training.build import Built

log = logging.getLogger(__name__)

CHANGEABLE = ("baseline", "plugin_folder", "stall_limit")
"""Settings that may change on resuming, because responses do not depend on them."""


@dataclass(frozen=True)
class Evaluated:
    """What was found on a benchmark: each problem that has responses, and all responses."""

    answered: Sequence[Answered]
    responses: Responses

    @property
    def results(self) -> list[ProblemResult]:
        """The result of each problem that has responses."""
        return [each.result for each in self.answered]


def evaluate(
    layers: Sequence[Mapping[str, Any]], path: Path, resume: bool, console: Console
) -> None:
    """Evaluate, or resume an evaluation, in the folder `path`."""
    config = resolve(EvaluateConfig, layers, path, resume, CHANGEABLE)
    baseline = _read_evaluation(Path(config.baseline)) if config.baseline else {}
    benchmarks = find_benchmarks(config.benchmarks)
    sources = {each.name: partial(_read, config, each) for each in benchmarks}
    check = partial(_check_common, config.baseline, baseline)
    found = draw_all(config, path, sources, _fitting, console, check)
    evaluated = {
        name: _graded(config, path, name, problems, baseline)
        for name, (problems, _) in found.items()
    }
    for name, each in evaluated.items():
        if not each.results:
            raise EngineError(f"{name}: the engine lost all draws; the log says why")
    summary = as_json(_summarize(config, found, evaluated, baseline))
    RunFolder(path).write_summary(summary)
    seal(path)
    show(console, evaluation_tables(summary))
    page = _write_report(path, config, summary, evaluated)
    console.print(f"report: {page}", markup=False)


def write_report_again(path: Path) -> Path:
    """Write the report of a finished evaluation from what is recorded in its folder."""
    folder = RunFolder(path)
    config = make_settings(EvaluateConfig, folder.read_config())
    baseline = _read_evaluation(Path(config.baseline)) if config.baseline else {}
    evaluated = _read_evaluation(path, baseline, of="")
    return _write_report(path, config, folder.read_summary() or {}, evaluated)


def _write_report(
    path: Path,
    config: EvaluateConfig,
    summary: Mapping[str, Any],
    evaluated: Mapping[str, Evaluated],
) -> Path:
    answered = [problem for each in evaluated.values() for problem in each.answered]
    settings = asdict(config)
    tables = list(evaluation_tables(summary))
    started = RunFolder(path).read_about("started")
    return write_evaluation_report(path, summary, settings, tables, answered, started)


def _read(config: EvaluateConfig, benchmark: Benchmark) -> ProblemSet:
    """Read the problems of a benchmark, whose references the grader must be able to read."""
    grader = config.grading.make()
    columns = wanted_columns(config)
    found = read_benchmark(benchmark, config.data, grader.instruction, columns)
    log.info("%s: %s", benchmark.name, found.describe())
    check_references(found.problems, grader, benchmark.name)
    return found


def _fitting(built: Built[EvaluateConfig], found: ProblemSet) -> Found:
    fitting = built.encode(found.problems)
    return fitting.problems, found.left_out | {"too_long": fitting.too_long}


def _graded(
    config: EvaluateConfig,
    path: Path,
    name: str,
    problems: Sequence[Problem],
    baseline: Mapping[str, Evaluated],
) -> Evaluated:
    """Combine each problem that has responses with its results, here and in the baseline."""
    responses = read_responses(path / "responses" / name)
    others = baseline[name].results if name in baseline else ()
    rates = {result.key: result.pass_rate for result in others}
    answered = []
    for problem in problems:
        if rows := responses.rows.get(problem.key):
            key, level, subject = problem.key, problem.level, problem.subject
            said = [row["response"] for row in rows]
            answers = final_answers(said, config.grading)
            accs_G = np.array([row["acc"] for row in rows])
            correct_G = accs_G > config.grading.positive_threshold
            result = ProblemResult(key, correct_G, answers, level=level, subject=subject)
            answered.append(Answered(name, problem, rows, result, rates.get(key)))
    voted = with_votes([each.result for each in answered], config.grading)
    pairs = zip(answered, voted, strict=True)
    return Evaluated([replace(each, result=result) for each, result in pairs], responses)


def _read_evaluation(
    path: Path, baseline: Mapping[str, Evaluated] | None = None, of: str = "`baseline`: "
) -> dict[str, Evaluated]:
    """Read an evaluation; it is an error if it is not there, or not finished."""
    folder = RunFolder(path)
    recorded = folder.read_config()
    if not recorded.keys() <= settings_of(EvaluateConfig).keys():
        raise RunError(f"{of}{path} is the folder of another command, not an evaluation")
    config = make_settings(EvaluateConfig, recorded)
    if folder.read_summary() is None:
        raise RunError(f"{of}the evaluation in {path} is not finished")
    names = [benchmark.name for benchmark in find_benchmarks(config.benchmarks)]
    known = {name: read_problems(problem_file(path, name)).problems for name in names}
    for name, problems in known.items():
        files = portions(path / "responses" / name, problems, config.portion)
        if missing := [str(file) for file in files if not file.exists()]:
            raise RunError(f"{of}{', '.join(missing)} is missing; restore it")
    return {name: _graded(config, path, name, known[name], baseline or {}) for name in names}


def _check_common(
    path: str, baseline: Mapping[str, Evaluated], problems: Mapping[str, list[Problem]]
) -> None:
    """Refuse a baseline that shares no problem with this evaluation."""
    theirs = {(name, result.key) for name, each in baseline.items() for result in each.results}
    ours = {(name, problem.key) for name, asked in problems.items() for problem in asked}
    if baseline and not theirs & ours:
        raise DataError(
            f"`baseline`: the evaluation in {path} shares no problem with this one; it has the "
            f"benchmarks {', '.join(baseline)}"
        )


def _summarize(
    config: EvaluateConfig,
    found: Mapping[str, Found],
    evaluated: Mapping[str, Evaluated],
    baseline: Mapping[str, Evaluated],
) -> dict[str, Any]:
    benchmarks = {
        name: {
            "problems": len(each.results),
            **found[name][1],
            "undrawn": len(found[name][0]) - len(each.results),
            **figures_of(each.results, config.samples),
            **tables_of(each.results),
            **each.responses.lengths(),
            **(_turns(each.responses) if config.episode.plays else {}),
            **each.responses.counts,
        }
        for name, each in evaluated.items()
    }
    summary: dict[str, Any] = {"model": config.model.path, "samples": config.samples}
    summary["benchmarks"] = benchmarks
    if len(evaluated) > 1:
        every = [result for each in evaluated.values() for result in each.results]
        summary["average"] = {"problems": len(every), **figures_of(every, config.samples)}
    if baseline:
        compared = _compare(evaluated, baseline)
        summary["baseline"] = {"folder": config.baseline, "benchmarks": compared}
    return summary


def _turns(responses: Responses) -> dict[str, Any]:
    rows = responses.all_rows()
    ends = Counter(row["end"] for row in rows)
    return {
        "turns": sum(row["turns"] for row in rows) / len(rows),
        "ends": {end: ends[end] for end in ("done", "truncated", "failed")},
    }


def _compare(
    evaluated: Mapping[str, Evaluated], baseline: Mapping[str, Evaluated]
) -> dict[str, Any]:
    """Compare benchmark by benchmark, and add the baseline's own figures on the same problems."""
    found = {}
    for name in (name for name in evaluated if name in baseline):
        own = evaluated[name].results
        keys = {result.key for result in own}
        theirs = [result for result in baseline[name].results if result.key in keys]
        if theirs:
            samples = max(result.drawn for result in theirs)
            found[name] = compare(own, theirs) | {"figures": figures_of(theirs, samples)}
    return found
