"""`rollwise evaluate`: evaluate a model on benchmarks, with 95 % intervals."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rollwise.commands.evaluate_tables import evaluation_tables
from rollwise.commands.folder import settle, stopped, write_settings
from rollwise.commands.responses import (
    OF_RESPONSES,
    SCHEMA,
    Responses,
    draw_responses,
    keep_problems,
    kept_problems,
    read_responses,
)
from rollwise.commands.show import progress, show
from rollwise.config import EvaluateConfig, GradingSection, make_settings
from rollwise.errors import DataError, EngineError, RunError
from rollwise.models.building import Parts, build
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

Results = dict[str, list[ProblemResult]]
"""Benchmark -> the results of its problems."""


def evaluate(
    layers: Sequence[Mapping[str, Any]], path: Path, resume: bool, console: Console
) -> bool:
    """Evaluate, or resume an evaluation, in the folder `path`; returns whether it finished.

    See `folder.settle` for the arguments.

    Raises:
        RollwiseError: Says what is wrong, and what to do.
        Terminated: SIGTERM or SIGHUP stopped it; all portions but the last are written.
    """
    config = settle(EvaluateConfig, layers, path, resume, CHANGEABLE)
    baseline = _read_evaluation(Path(config.baseline)) if config.baseline else {}
    try:
        problems = _draw_all(config, path, baseline, console)
    except KeyboardInterrupt as stop:
        return stopped("evaluate", path, console, stop)
    columns = SCHEMA.names if config.episode.plays else OF_RESPONSES
    responses = {name: read_responses(_portions(path, name), columns) for name in problems}
    results = {n: results_of(problems[n], responses[n], config.grading) for n in problems}
    for name, found in results.items():
        if not found:
            raise EngineError(f"{name}: the engine lost all draws; the log says why")
    summary = as_json(_summarise(config, responses, results, baseline))
    folder = RunFolder(path)
    folder.write_summary(summary)
    seal(folder)
    tables = list(evaluation_tables(summary))
    show(console, tables)
    answered = _answered(problems, responses, results, baseline)
    settings = config.model_dump(mode="json")
    report = write_evaluation_report(path, summary, settings, tables, answered)
    console.print(f"report: {report}", markup=False)
    return True


def _draw_all(
    config: EvaluateConfig, path: Path, baseline: Results, console: Console
) -> dict[str, list[Problem]]:
    with build(config) as parts:
        problems = {
            benchmark.name: _problems_of(benchmark, path, parts, console)
            for benchmark in find_benchmarks(config.benchmarks)
        }
        if baseline:
            _check_common(config.baseline, problems, baseline)
        write_settings(path, config)
        for name, of_benchmark in problems.items():
            if not (known := _problem_file(path, name)).exists():
                keep_problems(known, of_benchmark, config)
            with progress(console, name, len(of_benchmark), "problems") as on_portion:
                draw_responses(_portions(path, name), of_benchmark, parts, on_portion)
    return problems


def _problems_of(
    benchmark: Benchmark, path: Path, parts: Parts[EvaluateConfig], console: Console
) -> list[Problem]:
    """Read the problems in the folder; if it is new, the problems of the benchmark that fit."""
    known, config = _problem_file(path, benchmark.name), parts.config
    if known.exists():
        return kept_problems(known, config, CHANGEABLE)[0]
    instruction = config.grading.make().instruction
    found = parts.encode(read_benchmark(benchmark, config.data, instruction))
    if found.too_long:
        left_out = f"{found.too_long} prompts are over {found.limit} tokens, and left out"
        console.print(f"{benchmark.name}: {left_out}")
    return found.problems


def _problem_file(path: Path, name: str) -> Path:
    return path / "problems" / f"{name}.parquet"


def _portions(path: Path, name: str) -> Path:
    return path / "responses" / name


def _read_evaluation(path: Path) -> Results:
    """Read the results of another evaluation.

    Raises:
        RunError: There is no evaluation in the folder, or it is not finished.
    """
    folder = RunFolder(path)
    refuse_damage(folder)
    recorded = folder.read_config()
    if not recorded.keys() <= EvaluateConfig.model_fields.keys():
        raise RunError(f"`baseline`: {path} is the folder of another command, not an evaluation")
    config = make_settings(EvaluateConfig, recorded)
    if folder.read_summary() is None:
        raise RunError(f"`baseline`: the evaluation in {path} is not finished")
    return {
        benchmark.name: results_of(
            read_problems(_problem_file(path, benchmark.name)).problems,
            read_responses(_portions(path, benchmark.name)),
            config.grading,
        )
        for benchmark in find_benchmarks(config.benchmarks)
    }


def _check_common(path: str, problems: Mapping[str, list[Problem]], baseline: Results) -> None:
    """Refuse a baseline with which no problem is shared."""
    theirs = {(name, result.key) for name, found in baseline.items() for result in found}
    ours = {(name, problem.key) for name, asked in problems.items() for problem in asked}
    if not theirs & ours:
        raise DataError(
            f"`baseline`: the evaluation in {path} has no problem of this one; it has the "
            f"benchmarks {', '.join(baseline)}"
        )


def results_of(
    problems: Sequence[Problem], responses: Responses, grading: GradingSection
) -> list[ProblemResult]:
    """Return the result of each problem that has a response, by the section `grading`."""
    results = []
    for problem in problems:
        if rows := responses.rows.get(problem.key):
            correct_G = np.array([row["reward"] for row in rows]) > grading.positive_threshold
            answers = final_answers([row["response"] for row in rows], grading)
            level, subject = problem.level, problem.subject
            results.append(ProblemResult(problem.key, correct_G, answers, level, subject))
    return results


def _answered(
    problems: Mapping[str, list[Problem]],
    responses: Mapping[str, Responses],
    results: Results,
    baseline: Results,
) -> list[Answered]:
    """Put each problem that has a response beside what was found of it."""
    answered = []
    for name, of_benchmark in problems.items():
        by_key = {problem.key: problem for problem in of_benchmark}
        theirs = {result.key: result.pass_rate for result in baseline.get(name, ())}
        for result in results[name]:
            rows, rate = responses[name].rows[result.key], theirs.get(result.key)
            answered.append(Answered(name, by_key[result.key], rows, result, rate))
    return answered


def _summarise(
    config: EvaluateConfig,
    responses: Mapping[str, Responses],
    results: Results,
    baseline: Results,
) -> dict[str, Any]:
    benchmarks = {
        name: {
            "problems": len(found),
            **figures_of(found, config.samples),
            **tables_of(found),
            **responses[name].lengths(),
            **(_turns(responses[name]) if config.episode.plays else {}),
            **responses[name].counts,
        }
        for name, found in results.items()
    }
    summary: dict[str, Any] = {"model": config.model.path, "samples": config.samples}
    summary["benchmarks"] = benchmarks
    if len(results) > 1:
        every = [result for found in results.values() for result in found]
        summary["average"] = {"problems": len(every), **figures_of(every, config.samples)}
    if baseline:
        summary["baseline"] = _compare(config.baseline, results, baseline)
    return summary


def _turns(responses: Responses) -> dict[str, Any]:
    rows = responses.all_rows()
    ends = Counter(row["end"] for row in rows)
    return {
        "turns": sum(row["turns"] for row in rows) / len(rows),
        "ends": {end: ends[end] for end in ("done", "truncated", "failed")},
    }


def _compare(path: str, results: Results, baseline: Results) -> dict[str, Any]:
    """Compare benchmark by benchmark, and add the baseline's own figures on the same problems."""
    found = {}
    for name in (name for name in results if name in baseline):
        keys = {result.key for result in results[name]}
        theirs = [result for result in baseline[name] if result.key in keys]
        if theirs:
            samples = max(result.drawn for result in theirs)
            compared = compare(results[name], theirs)
            found[name] = compared | {"figures": figures_of(theirs, samples)}
    return {"folder": path, "benchmarks": found}
