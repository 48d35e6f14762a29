"""`rollwise evaluate`: evaluate a model on benchmarks, with 95 % intervals."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rollwise.commands.drawing import Found, Responses, draw_all, problem_file, read_responses
from rollwise.commands.evaluate_tables import evaluation_tables
from rollwise.commands.folder import settle
from rollwise.commands.show import show
from rollwise.config import EvaluateConfig, make_settings
from rollwise.errors import DataError, EngineError, RunError
from rollwise.models.building import Parts
from rollwise.records import RunFolder
from rollwise.records.final import refuse_damage, seal
from rollwise.reports.evaluation import Answered, write_evaluation_report
from rollwise.statistics import (
    ProblemResult,
    as_json,
    compare,
    figures_of,
    final_answers,
    tables_of,
)
from rollwise.tasks import Benchmark, Problem, find_benchmarks, read_benchmark, read_problems

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
    config = settle(EvaluateConfig, layers, path, resume, CHANGEABLE)
    baseline = _read_evaluation(Path(config.baseline)) if config.baseline else {}
    benchmarks = find_benchmarks(config.benchmarks)
    sources = {each.name: partial(_read, benchmark=each, console=console) for each in benchmarks}
    check = partial(_check_common, config.baseline, baseline)
    found = draw_all(config, path, sources, console, check)
    evaluated = {
        name: _graded(config, path, name, problems, baseline)
        for name, (problems, _) in found.items()
    }
    for name, each in evaluated.items():
        if not each.results:
            raise EngineError(f"{name}: the engine lost all draws; the log says why")
    summary = as_json(_summarize(config, evaluated, baseline))
    folder = RunFolder(path)
    folder.write_summary(summary)
    seal(folder)
    tables = list(evaluation_tables(summary))
    show(console, tables)
    answered = [problem for each in evaluated.values() for problem in each.answered]
    settings = config.model_dump(mode="json")
    report = write_evaluation_report(path, summary, settings, tables, answered)
    console.print(f"report: {report}", markup=False)


def _read(parts: Parts[EvaluateConfig], benchmark: Benchmark, console: Console) -> Found:
    """Read the problems of a benchmark that fit the model."""
    config = parts.config
    instruction = config.grading.make().instruction
    found = parts.encode(read_benchmark(benchmark, config.data, instruction))
    if found.too_long:
        left_out = f"{found.too_long} prompts over {found.limit} tokens are left out"
        console.print(f"{benchmark.name}: {left_out}")
    return found.problems, {}


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
            rewards_G = np.array([row["reward"] for row in rows])
            answers = final_answers([row["response"] for row in rows], config.grading)
            correct_G = rewards_G > config.grading.positive_threshold
            result = ProblemResult(key, correct_G, answers, level, subject)
            answered.append(Answered(name, problem, rows, result, rates.get(key)))
    return Evaluated(answered, responses)


def _read_evaluation(path: Path) -> dict[str, Evaluated]:
    """Read another evaluation; it is an error if it is not there, or not finished."""
    folder = RunFolder(path)
    refuse_damage(folder)
    recorded = folder.read_config()
    if not recorded.keys() <= EvaluateConfig.model_fields.keys():
        raise RunError(f"`baseline`: {path} is the folder of another command, not an evaluation")
    config = make_settings(EvaluateConfig, recorded)
    if folder.read_summary() is None:
        raise RunError(f"`baseline`: the evaluation in {path} is not finished")
    names = [benchmark.name for benchmark in find_benchmarks(config.benchmarks)]
    known = {name: read_problems(problem_file(path, name)).problems for name in names}
    return {name: _graded(config, path, name, known[name], {}) for name in names}


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
    config: EvaluateConfig, evaluated: Mapping[str, Evaluated], baseline: Mapping[str, Evaluated]
) -> dict[str, Any]:
    benchmarks = {
        name: {
            "problems": len(each.results),
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
        found = _compare(evaluated, baseline)
        summary["baseline"] = {"folder": config.baseline, "benchmarks": found}
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
