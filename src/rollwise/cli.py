"""The command line: parses arguments, and calls the command."""

import argparse
import difflib
import errno
import logging
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler

import rollwise
from rollwise.config import (
    CommandConfig,
    CompareConfig,
    EvaluateConfig,
    PlanConfig,
    PrepareConfig,
    TrainConfig,
    read_toml,
)
from rollwise.config.command_line import (
    check_names,
    read_given,
    settings_help,
    split_settings,
)
from rollwise.errors import (
    ConfigError,
    RollwiseError,
    half_of_a_pair,
    is_out_of_memory,
    one_line,
)
from rollwise.files import locked
from rollwise.signals import Terminated, terminated_by_signals

Commands = Any  # argparse's class of it is private

SHORT = {
    errno.ENOSPC: "free space where the output goes; what was saved is kept",
    errno.EMFILE: "allow more open files (`ulimit -n 1024`)",
    errno.ENFILE: "the system has too many open files",
}
"""What a system runs out of, by the number of the error, and what to do."""

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it; after another signal, 128 and its number."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    with terminated_by_signals():
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        except RollwiseError as error:
            print(f"rollwise: {error}", file=sys.stderr)
            return error.exit_code
        except Terminated as stop:
            with suppress(OSError):  # its terminal may be gone
                print(f"rollwise: stopped by {stop}", file=sys.stderr)
            return 128 + stop.number
        except KeyboardInterrupt:
            print("rollwise: stopped", file=sys.stderr)
            return INTERRUPTED
        except (MemoryError, RuntimeError, OSError, ImportError) as error:
            if isinstance(error, OSError) and error.errno in SHORT:
                print(f"rollwise: {one_line(error)}: {SHORT[error.errno]}", file=sys.stderr)
                return RollwiseError.exit_code
            if not is_out_of_memory(error):
                raise
            print(
                f"rollwise: there is not enough memory: {one_line(error)}; a lower "
                "`engine.batch_size`, `engine.max_new_tokens` or `prompts.batch_size` needs less",
                file=sys.stderr,
            )
            return RollwiseError.exit_code


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of everything but the settings."""
    parser = argparse.ArgumentParser("rollwise", description=rollwise.__doc__)
    parser.add_argument("--version", action="version", version=f"rollwise {rollwise.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_report(commands)
    _add_doctor(commands)
    for name, command in RUN_COMMANDS.items():
        command.add(name, commands)
    _add_plan(commands)
    _add_verl(commands)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; `settings` of the result has the settings, as name and text.

    Raises:
        SystemExit: It asks for help, or is no command line; what is wrong has been printed.
    """
    parser = make_parser()
    [commands] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    name = arguments[0] if arguments else ""
    called = commands.choices.get(name)
    if called is None and name and not name.startswith("-"):
        near = difflib.get_close_matches(name, commands.choices, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(commands.choices)}"
        parser.error(f"there is no command `{name}`; {hint}")
    kind = called.get_default("kind") if called else None
    if called is None or kind is None:
        return parser.parse_args(arguments)
    options = {text: a.nargs is None for a in called._actions for text in a.option_strings}
    try:
        words, given = split_settings(arguments[1:], options)
        if not {"-h", "--help"} & {*words}:
            check_names(kind, given)
    except ConfigError as error:
        called.error(str(error))
    parsed = parser.parse_args([name, *words])
    parsed.settings = given
    return parsed


Layers = list[dict[str, object]]


def _layers(options: argparse.Namespace) -> Layers:
    """Return the settings of the file and those of the command line."""
    file = read_toml(options.config) if options.config else {}
    return [file, read_given(options.kind, options.settings, file)]


def _run(arguments: Sequence[str]) -> int:
    for argument in arguments:
        if half_of_a_pair(argument):  # as bytes that are not UTF-8 arrive
            raise ConfigError(f"{os.fsencode(argument)!r} on the command line is not UTF-8")
    options = parse(arguments)
    console = Console(highlight=False)
    # Output that other programs read stays free of remarks.
    is_read = getattr(options, "print", False) or getattr(options, "json", False)
    remarks = Console(highlight=False, stderr=True) if is_read else console
    handler = RichHandler(console=remarks, show_time=False, show_path=False, show_level=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    logging.getLogger("rollwise").setLevel(logging.INFO)
    return int(options.run(options, console))


@dataclass(frozen=True)
class RunCommand:
    """A command that works in a run's folder, and can be resumed there.

    `rollwise.commands.NAME` has the function NAME, which is called with the layers of settings, the
    folder, whether it resumes, and the console; it returns whether it finished.

    Attributes:
        kind: Its settings.
        help: A line on it.
        description: What `--help` says.
        example: What follows the command's name in an example.
        options: Options that its usage shows beside those of all.
    """

    kind: type[CommandConfig]
    help: str
    description: str
    example: str
    options: str = "[--section.key VALUE]"

    def add(self, name: str, commands: Commands) -> None:
        """Add it to a parser."""
        parser = _add_with_settings(
            commands,
            name,
            self.kind,
            usage=f"[config] [--output DIR] {self.options}",
            example=self.example,
            help=self.help,
            description=self.description,
        )
        _add_run_options(parser, self.kind, partial(_call, name))


def _call(name: str, layers: Layers, folder: Path, resume: bool, console: Console) -> bool:
    command = getattr(import_module(f"rollwise.commands.{name}"), name)
    return bool(command(layers, folder, resume, console))


RUN_COMMANDS = {
    "train": RunCommand(
        TrainConfig,
        "train a model; with nothing else, the built-in model on the built-in task",
        "Train a model by reinforcement learning with adaptive sampling. Settings "
        "come from the defaults, then the TOML file, then the command line. Some defaults depend "
        "on the model, the task and the exit rule. Interrupted, the same command with the same "
        "--output resumes; --resume takes the recorded settings.",
        "--steps 20 --exit.type balanced --output runs/first",
        "[--resume] [--section.key VALUE]",
    ),
    "evaluate": RunCommand(
        EvaluateConfig,
        "evaluate a model on benchmarks; with nothing else, the built-in ones",
        "Draw responses of a model to the problems of benchmarks: avg@k, pass@k, "
        "maj@k with intervals, and a comparison with another evaluation. Interrupted, the same "
        "command with the same --output resumes. See docs/evaluate.md.",
        "--model.path runs/first --output runs/second",
    ),
    "prepare": RunCommand(
        PrepareConfig,
        "prepare problems for training: clean them, and choose them by pass rate",
        "Read problems, remove duplicates, check reference solutions, estimate the "
        "pass rate of each by a model's responses, and write those within a range. Interrupted, "
        "the same command with the same --output resumes. See docs/prepare.md.",
        "--data.sources problems.jsonl --output runs/third",
    ),
    "compare": RunCommand(
        CompareConfig,
        "compare methods over seeds, by what they reach and what it costs",
        "Train methods with several seeds, or read runs that exist, and compare their "
        "held-out accuracy at equal cost, with intervals over seeds; or replay recorded rewards. "
        "Interrupted, the same command with the same --output resumes. See docs/compare.md.",
        "methods.toml --seeds 4 --output runs/comparison",
        "[--key VALUE]",
    ),
}


def _add_with_settings(
    commands: Commands,
    name: str,
    kind: type[CommandConfig],
    *,
    usage: str,
    example: str,
    help: str,
    description: str,
) -> argparse.ArgumentParser:
    """Add the parser of a command that has settings."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"rollwise {name} {usage}",
        help=help,
        description=f"Example: rollwise {name} {example}\n\n{textwrap.fill(description, 79)}",
        epilog=settings_help(kind),
    )
    parser.set_defaults(kind=kind)
    return parser


def _add_run_options(
    parser: argparse.ArgumentParser,
    kind: type[CommandConfig],
    command: Callable[[Layers, Path, bool, Console], bool],
) -> None:
    """Give a command its file, its folder and its settings."""
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file with settings")
    parser.add_argument("--output", type=Path, help="the run's folder (default: runs/DATE-TIME)")
    what = "from its checkpoint" if issubclass(kind, TrainConfig) else "with its settings"
    parser.add_argument("--resume", action="store_true", help=f"resume the run in --output {what}")

    def run(options: argparse.Namespace, console: Console) -> int:
        layers = _layers(options)
        if options.resume and options.output is None:
            raise ConfigError("--resume needs --output, the folder of the run to resume")
        folder = options.output or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
        with locked(folder):
            return 0 if command(layers, folder, options.resume, console) else INTERRUPTED

    parser.set_defaults(run=run)


def _add_plan(commands: Commands) -> None:
    parser = _add_with_settings(
        commands,
        "plan",
        PlanConfig,
        usage="[config] [--output DIR] [--section.key VALUE]",
        example="methods.toml --steps 64",
        help="predict what methods cost and teach a step, before anything is trained",
        description="Take steps of each method with pass rates and prices that are known, in "
        "virtual time and without a model: draws, tokens, seconds, zero-variance groups, and the "
        "signal that is learned from. See docs/plan.md.",
    )
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file with settings")
    parser.add_argument("--output", type=Path, help="a folder for the tables and the report")

    def run(options: argparse.Namespace, console: Console) -> int:
        from rollwise.commands.plan import plan

        plan(_layers(options), options.output, console)
        return 0

    parser.set_defaults(run=run)


def _add_report(commands: Commands) -> None:
    parser = commands.add_parser(
        "report",
        help="write report.html for a run, or for all runs in a folder",
        description="Write a self-contained report.html into the folder of a run, or into one that "
        "holds runs: a table and charts of all of them, linked to the report of each.",
    )
    parser.add_argument("folder", type=Path, help="the folder of a run, or of runs")

    def run(options: argparse.Namespace, console: Console) -> int:
        from rollwise.reports import write_reports

        console.print(f"report: {write_reports(options.folder)}", markup=False)
        return 0

    parser.set_defaults(run=run)


def _add_doctor(commands: Commands) -> None:
    parser = commands.add_parser(
        "doctor",
        help="say what works here, why something does not, and what to type",
        description="Say which engines, graders, trainers and sandboxes work here, why others do "
        "not, and what to type. With a settings file: whether its settings are valid, and what "
        "they need is here. A file with a table [verl] is checked for `rollwise verl`. With --try "
        "also what memory and seconds the largest step of its run takes. The exit code is 0 if all "
        "is well; without a file, if the built-in trainer works and no installed package is of a "
        "release that rollwise does not admit.",
    )
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file with settings")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--try",
        action="store_true",
        dest="try_it",
        help="take one step of the run, whose responses are all as long as they may be, and say "
        "what it takes; nothing is written",
    )

    def run(options: argparse.Namespace, console: Console) -> int:
        from rollwise.commands.doctor import examine

        def read_for_verl(given: Mapping[str, Any]) -> TrainConfig:
            from rollwise.integrations.verl.settings import read_settings

            return read_settings([given])[0]

        return examine(options.config, options.json, options.try_it, read_for_verl)

    parser.set_defaults(run=run)


def _add_verl(commands: Commands) -> None:
    parser = _add_with_settings(
        commands,
        "verl",
        TrainConfig,
        usage="[config] --output DIR [options] [--section.key VALUE]",
        example="settings.toml --output runs/verl --print",
        help="train on many machines, by verl",
        description="Train by verl, from the same settings as `train`; a table [verl] of the TOML "
        "file holds verl's own, in its words. Needs the extra `verl`: docs/verl.md.",
    )
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file with settings")
    parser.add_argument("--output", type=Path, required=True, help="the run's folder")
    parser.add_argument(
        "--resume", action="store_true", help="resume the run in --output from its checkpoint"
    )
    parser.add_argument(
        "--print", action="store_true", help="print verl's overrides, a line each, and stop"
    )

    def run(options: argparse.Namespace, console: Console) -> int:
        from rollwise.integrations.verl.command import run

        layers = _layers(options)
        with nullcontext() if options.print else locked(options.output):
            return run(layers, options.output, options.resume, options.print)

    parser.set_defaults(run=run)
