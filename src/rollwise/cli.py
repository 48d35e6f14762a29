"""The command line: parses, and hands on."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_settings import CliSettingsSource, SettingsError
from rich.console import Console
from rich.logging import RichHandler

import rollwise
from rollwise.config import (
    CommandConfig,
    EvaluateConfig,
    PrepareConfig,
    TrainConfig,
    add_settings,
    explain_unknown,
    read_toml,
)
from rollwise.errors import ConfigError, RollwiseError

if TYPE_CHECKING:
    from rollwise.training.backend import Backend

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser("rollwise", description=rollwise.__doc__)
    parser.add_argument("--version", action="version", version=f"rollwise {rollwise.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (_add_train, _add_report, _add_evaluate, _add_prepare, _add_verl):
        add(commands)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(_explain(unknown, getattr(options, "kind", TrainConfig)))
    console = Console(highlight=False)
    # What is printed to be read by other programs stays free of remarks.
    remarks = (
        Console(highlight=False, stderr=True) if "print" in options and options.print else console
    )
    handler = RichHandler(console=remarks, show_time=False, show_path=False, show_level=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    logging.getLogger("rollwise").setLevel(logging.INFO)
    try:
        return int(options.run(options, console))
    except RollwiseError as error:
        print(f"rollwise: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rollwise: stopped", file=sys.stderr)
        return INTERRUPTED


def _explain(unknown: Sequence[str], kind: type[CommandConfig]) -> str:
    name = unknown[0].removeprefix("--").partition("=")[0]
    if unknown[0].startswith("--"):
        return explain_unknown(name, kind=kind)
    return f"unrecognized arguments: {' '.join(unknown)}"


def _add_train(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "train",
        allow_abbrev=False,
        usage="rollwise train [config] [--output DIR] [--resume] [--section.key VALUE]",
        help="train a model; with nothing else, the built-in model on the built-in task",
        description="Train a model by reinforcement learning with adaptive sampling. Settings "
        "come from the defaults, then the TOML file, then --section.key VALUE. Some defaults "
        "depend on the model, the task and the exit rule: docs/settings.md says how.",
    )
    _add_run_options(parser, TrainConfig, _train)


def _add_evaluate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "evaluate",
        allow_abbrev=False,
        usage="rollwise evaluate [config] [--output DIR] [--section.key VALUE]",
        help="evaluate a model on benchmarks; with nothing else, the built-in ones",
        description="Draw responses of a model to the problems of benchmarks: avg@k, pass@k, "
        "maj@k with intervals, and a comparison with another evaluation. Interrupted, the same "
        "command with the same --output goes on. docs/evaluate.md tells more.",
    )
    _add_run_options(parser, EvaluateConfig, _evaluate)


def _add_prepare(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "prepare",
        allow_abbrev=False,
        usage="rollwise prepare [config] [--output DIR] [--section.key VALUE]",
        help="prepare problems for training: clean them, and choose them by pass rate",
        description="Read problems, remove duplicates, check reference solutions, estimate the "
        "pass rate of each by a model's responses, and write those within a range. Interrupted, "
        "the same command with the same --output goes on. docs/prepare.md tells more.",
    )
    _add_run_options(parser, PrepareConfig, _prepare)


Layers = list[dict[str, object]]


def _add_run_options(
    parser: argparse.ArgumentParser,
    kind: type[CommandConfig],
    command: Callable[[Layers, Path, bool, Console], bool],
) -> None:
    """Give a command its file, its folder and its settings."""
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file with settings")
    parser.add_argument("--output", type=Path, help="the run's folder (default: runs/DATE-TIME)")
    what = "from its checkpoint" if kind is TrainConfig else "with its settings"
    parser.add_argument(
        "--resume", action="store_true", help=f"go on with the run in --output {what}"
    )
    settings = add_settings(parser, kind)

    def run(options: argparse.Namespace, console: Console) -> int:
        layers = [read_toml(options.config)] if options.config else []
        layers.append(_given(settings, options))
        if options.resume and options.output is None:
            raise ConfigError("--resume needs --output, the folder of the run to go on with")
        folder = options.output or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
        return 0 if command(layers, folder, options.resume, console) else INTERRUPTED

    parser.set_defaults(run=run, kind=kind)


def _given(
    settings: CliSettingsSource[argparse.ArgumentParser], options: argparse.Namespace
) -> dict[str, object]:
    """Take the settings of the command line, lists and tables read."""
    try:
        return dict(settings(parsed_args=options)())
    except SettingsError as error:
        # It names the setting alone in its text: "Parsing error encountered for NAME: REASON".
        name, _, reason = str(error).partition(" for ")[2].partition(": ")
        raise ConfigError(
            f"`{name}`: on the command line a list is written as a,b and a table as JSON, such as "
            f"'{{\"count\": 4}}' ({reason})"
        ) from None


def _train(layers: Layers, folder: Path, resume: bool, console: Console) -> bool:
    from rollwise.training.command import train

    return train(layers, folder, resume, console, _open_backend)


def _evaluate(layers: Layers, folder: Path, resume: bool, console: Console) -> bool:
    from rollwise.drawing.evaluate import evaluate

    return evaluate(layers, folder, resume, console)


def _prepare(layers: Layers, folder: Path, resume: bool, console: Console) -> bool:
    from rollwise.drawing.prepare import prepare

    return prepare(layers, folder, resume, console)


def _open_backend(config: TrainConfig, checkpoint: Path | None) -> "Backend":
    if config.backend.type == "tinker":
        from rollwise.integrations.tinker import TinkerBackend

        return TinkerBackend(config, checkpoint)
    from rollwise.training.run import LocalBackend

    return LocalBackend(config, checkpoint)


def _add_report(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "report",
        help="write report.html for a run's folder",
        description="Write a self-contained report.html into the folder of a run.",
    )
    parser.add_argument("folder", type=Path, help="the run's folder")

    def run(options: argparse.Namespace, console: Console) -> int:
        from rollwise.reports import write_report

        console.print(f"report: {write_report(options.folder)}")
        return 0

    parser.set_defaults(run=run)


def _add_verl(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "verl",
        allow_abbrev=False,
        usage="rollwise verl [config] --output DIR [options] [--section.key VALUE]",
        help="train on many machines, by verl",
        description="Train by verl, from the same settings as `train`; a table [verl] of the TOML "
        "file holds verl's own, in its words. Needs the extra `verl`: docs/verl.md.",
    )
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file with settings")
    parser.add_argument("--output", type=Path, required=True, help="the run's folder")
    parser.add_argument(
        "--resume", action="store_true", help="go on with the run in --output from its checkpoint"
    )
    parser.add_argument(
        "--print", action="store_true", help="print verl's overrides, a line each, and stop"
    )
    settings = add_settings(parser)

    def run(options: argparse.Namespace, console: Console) -> int:
        from rollwise.integrations.verl.command import run

        layers = [read_toml(options.config)] if options.config else []
        layers.append(_given(settings, options))
        return run(layers, options.output, options.resume, options.print)

    parser.set_defaults(run=run)
