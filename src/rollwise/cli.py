"""The command line: parses arguments, and calls the command."""

import argparse
import errno
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler

import rollwise
from rollwise.config import KINDS, TrainConfig, read_toml
from rollwise.config.reading import Given, read_given, settings_help, split_settings
from rollwise.errors import (
    ConfigError,
    PluginError,
    RollwiseError,
    half_of_a_pair,
    is_out_of_memory,
    one_line,
)
from rollwise.files import locked
from rollwise.plugins import called_wrongly, raised_in_plugin
from rollwise.signals import Terminated, terminated_by_signals

SHORT = {
    errno.ENOSPC: "free space where the output goes; what was saved is kept",
    errno.EMFILE: "allow more open files (`ulimit -n 1024`)",
    errno.ENAMETOOLONG: "the name is too long for a file",
    errno.ENFILE: "the system has too many open files",
}
"""What to do where a system has run out of something, by the number of the error."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    with terminated_by_signals():
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        except RollwiseError as error:
            said, code = str(error), error.exit_code
        except KeyboardInterrupt as stop:
            by = f" by {stop}" if isinstance(stop, Terminated) else ""
            said, code = f"stopped{by}", 128 + getattr(stop, "number", signal.SIGINT)
        except (MemoryError, RuntimeError, OSError, ImportError) as error:
            if not (advice := _shortage(error)):
                raise
            said, code = f"{one_line(error)}: {advice}", RollwiseError.exit_code
    with suppress(OSError):  # the terminal may be gone
        print(f"rollwise: {said}", file=sys.stderr)
    return code


def _shortage(error: BaseException) -> str:
    """Say what to do where the system or a device has run out of something; "" if it has not."""
    if is_out_of_memory(error):
        return (
            "there is not enough memory; lower `engine.batch_size`, `engine.max_new_tokens` or "
            "`prompts.batch_size`"
        )
    return SHORT.get(getattr(error, "errno", None) or 0, "")


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
    try:
        return COMMANDS[options.command].run(options, console) or 0
    except Exception as error:
        said = raised_in_plugin(error) or called_wrongly(error)
        if isinstance(error, RollwiseError) or _shortage(error) or not said:
            raise
        raise PluginError(said) from error


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; the result's `settings` are the settings, as pairs of name and text.

    Raises:
        SystemExit: It asks for help, or is not valid; what is wrong has been printed.
    """
    parser, name = make_parser(), arguments[0] if arguments else ""
    words, given = list(arguments), Given()
    if name in COMMANDS and COMMANDS[name].kind is not None:
        options = {**COMMANDS[name].options, "--help": {"action": "help"}}
        takes_value = {option: "action" not in how for option, how in options.items()}
        try:
            words, given = split_settings(words, takes_value)
        except ConfigError as error:
            parser.error(str(error))
    parsed = parser.parse_args(words)
    parsed.settings = given
    return parsed


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of everything but the settings."""
    parser = argparse.ArgumentParser("rollwise", description=rollwise.__doc__)
    parser.add_argument("--version", action="version", version=f"rollwise {rollwise.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        added = commands.add_parser(
            name,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            help=command.help,
            description=f"{textwrap.fill(command.help, 79)}\n\n"
            f"Example: rollwise {name} {command.example}",
            epilog=settings_help(command.kind) if command.kind else None,
        )
        for option, how in command.options.items():
            added.add_argument(option, **how)
        if command.kind is not None:
            needed = command.options["--output"].get("required")
            output = "--output DIR" if needed else "[--output DIR]"
            added.usage = f"rollwise {name} [config] {output} [options] [--section.key VALUE]"
    return parser


@dataclass(frozen=True)
class Command:
    """A command: what runs it, its settings, its other arguments as `add_argument` takes them."""

    run: Callable[[argparse.Namespace, Console], int | None]
    kind: Any
    options: Mapping[str, dict[str, Any]]
    example: str
    help: str


def _layers(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the settings of the file and those of the command line."""
    file = read_toml(options.config) if options.config else {}
    return [file, read_given(COMMANDS[options.command].kind, options.settings, file)]


def _run_in_folder(options: argparse.Namespace, console: Console) -> None:
    """Run a command that can be resumed in its folder: the function NAME of `commands.NAME`."""
    from rollwise.commands.folder import say_how_to_resume

    layers, name = _layers(options), options.command
    if options.resume and options.output is None:
        raise ConfigError("--resume needs --output, the folder of the run to resume")
    folder = options.output or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    command = getattr(import_module(f"rollwise.commands.{name}"), name)
    with locked(folder):
        try:
            command(layers, folder, options.resume, console)
        except KeyboardInterrupt:
            with suppress(OSError):  # after SIGHUP there is no terminal
                say_how_to_resume(name, folder, console)
            raise


def _plan(options: argparse.Namespace, console: Console) -> None:
    from rollwise.commands.plan import plan

    plan(_layers(options), options.output, console)


def _report(options: argparse.Namespace, console: Console) -> None:
    from rollwise.reports import write_reports

    for page in write_reports(options.folder):
        console.print(f"report: {page}", markup=False)


def _doctor(options: argparse.Namespace, console: Console) -> int:
    from rollwise.commands.doctor import examine

    def read_for_verl(given: Mapping[str, Any]) -> TrainConfig:
        from rollwise.integrations.verl.settings import read_settings

        return read_settings([given])[0]

    return examine(options.config, options.json, getattr(options, "try"), read_for_verl)


def _verl(options: argparse.Namespace, console: Console) -> int:
    from rollwise.integrations.verl.command import run

    layers = _layers(options)
    with nullcontext() if options.print else locked(options.output):
        return run(layers, options.output, options.resume, options.print)


def _flag(help: str) -> dict[str, Any]:
    return {"action": "store_true", "help": help}


def _folder(help: str, **others: Any) -> dict[str, Any]:
    return {"type": Path, "help": help, **others}


CONFIG = {"config": {"nargs": "?", "type": Path, "help": "a TOML file with settings"}}
RESUME = {"--resume": _flag("resume with the recorded settings; the same command resumes too")}


def _resumable(name: str, example: str, help: str) -> Command:
    output = {"--output": _folder("the run's folder (default: runs/DATE-TIME)")}
    return Command(_run_in_folder, KINDS[name], {**CONFIG, **output, **RESUME}, example, help)


COMMANDS = {
    "train": _resumable(
        "train",
        "--steps 20 --exit.type balanced --output runs/first",
        "train a model; by default, the built-in model on the built-in task",
    ),
    "evaluate": _resumable(
        "evaluate",
        "--model.path runs/first --benchmarks running-sums",
        "evaluate a model on benchmarks; by default, the built-in ones (docs/evaluate.md)",
    ),
    "prepare": _resumable(
        "prepare",
        "--data.sources problems.jsonl --output runs/third",
        "prepare problems for training: clean them, and choose by pass rate (docs/prepare.md)",
    ),
    "compare": _resumable(
        "compare",
        "methods.toml --seeds 4 --output runs/comparison",
        "compare methods over seeds, by what they reach and what it costs (docs/compare.md)",
    ),
    "plan": Command(
        _plan,
        KINDS["plan"],
        {**CONFIG, "--output": _folder("a folder for the tables")},
        "methods.toml --steps 64",
        "predict what methods cost and teach per step, before training (docs/plan.md)",
    ),
    "report": Command(
        _report,
        None,
        {"folder": _folder("the folder of a run, or of runs")},
        "runs/first",
        "write report.html for a run, or for each run in a folder",
    ),
    "doctor": Command(
        _doctor,
        None,
        {
            "config": {**CONFIG["config"], "help": "a TOML file, whose settings are checked too"},
            "--json": _flag("print JSON"),
            "--try": _flag("try the run's largest step; report its memory and time"),
        },
        "settings.toml --try",
        "report what works here, what does not, why, and how to fix it; exit code 0 if all is well",
    ),
    "verl": Command(
        _verl,
        KINDS["train"],
        {
            **CONFIG,
            "--output": _folder("the run's folder", required=True),
            **RESUME,
            "--print": _flag("print verl's overrides, and stop"),
        },
        "settings.toml --output runs/verl --print",
        "train on many machines with verl; its own settings go into a table [verl] (docs/verl.md)",
    ),
}
