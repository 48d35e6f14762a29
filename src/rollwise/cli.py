"""The command line: parses, and hands on."""

import argparse
import logging
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler

import rollwise
from rollwise.config import add_settings, explain_unknown, read_toml
from rollwise.errors import ConfigError, RollwiseError

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser("rollwise", description=rollwise.__doc__)
    parser.add_argument("--version", action="version", version=f"rollwise {rollwise.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (_add_train, _add_report, _add_verl):
        add(commands)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(_explain(unknown))
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


def _explain(unknown: Sequence[str]) -> str:
    name = unknown[0].removeprefix("--").partition("=")[0]
    if unknown[0].startswith("--"):
        return explain_unknown(name)
    return f"unrecognized arguments: {' '.join(unknown)}"


def _add_train(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "train",
        allow_abbrev=False,
        usage="rollwise train [config] [--output DIR] [--resume] [--section.key VALUE]",
        help="train a model; with nothing else, the built-in model on the built-in task",
        description="Train a model by reinforcement learning with adaptive sampling. Settings "
        "come from the defaults, then the TOML file, then --section.key VALUE. Some defaults hang "
        "on the model, the task and the exit rule: docs/settings.md says how.",
    )
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file with settings")
    parser.add_argument("--output", type=Path, help="the run's folder (default: runs/DATE-TIME)")
    parser.add_argument(
        "--resume", action="store_true", help="go on with the run in --output from its checkpoint"
    )
    settings = add_settings(parser)

    def run(options: argparse.Namespace, console: Console) -> int:
        layers = [read_toml(options.config)] if options.config else []
        layers.append(settings(parsed_args=options)())
        return _train(layers, options.output, options.resume, console)

    parser.set_defaults(run=run)


def _train(
    layers: list[dict[str, object]], output: Path | None, resume: bool, console: Console
) -> int:
    from rollwise.training.command import train

    if resume and output is None:
        raise ConfigError("--resume needs --output, the folder of the run to go on with")
    folder = output or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    finished = train(layers, folder, resume, console)
    return 0 if finished else INTERRUPTED


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
        layers.append(settings(parsed_args=options)())
        return run(layers, options.output, options.resume, options.print)

    parser.set_defaults(run=run)
