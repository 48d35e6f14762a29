"""The command line: parses arguments, and calls the command."""

import argparse
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.logging import RichHandler

import rollwise
from rollwise.errors import ConfigError, RollwiseError, half_of_a_pair, one_line, shortage
from rollwise.files import locked
from rollwise.plugins import naming_plugins
from rollwise.signals import Terminated, terminated_by_signals

if TYPE_CHECKING:  # pydantic and all settings take longer to load than `--help` should
    from rollwise.config import CommandConfig, TrainConfig


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
            if not (advice := shortage(error)):
                raise
            said, code = f"{one_line(error)}: {advice}", RollwiseError.exit_code
    with suppress(OSError):  # the terminal may be gone
        print(f"rollwise: {said}", file=sys.stderr)
    return code


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
    # Some libraries print what they log by themselves.
    handler.addFilter(lambda record: not logging.getLogger(record.name.split(".")[0]).handlers)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    logging.getLogger("rollwise").setLevel(logging.INFO)
    with naming_plugins():
        return _start(options, console)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; the result's `settings` are the settings, as pairs of name and text."""
    parser, commands = make_parsers()
    if not arguments or (name := arguments[0]) not in COMMANDS:
        return parser.parse_args(arguments)
    settings, others, words = list[tuple[str, str]](), list[str](), iter(arguments[1:])
    if kind := COMMANDS[name].kind:
        from rollwise.config.reading import check_option

        options = [*COMMANDS[name].options, "--help", "--"]
        for word in words:
            option, is_pair, text = word.partition("=")
            if not word.startswith("--") or option in options:
                others.append(word)
                continue
            check_option(kind, option, options)
            text = text if is_pair else next(words, "--")
            if text.startswith("--") and not is_pair:
                commands[name].error(f"argument {option}: expected one argument")
            settings.append((option.removeprefix("--"), text))
    given = argparse.Namespace(command=name, settings=settings)
    return commands[name].parse_args([*others, *words], given)


class _Help(argparse.Action):
    """Shows the help of a command with its common settings, or all settings of a section."""

    def __call__(self, parser: argparse.ArgumentParser, _: Any, topic: Any, *__: Any) -> None:
        from rollwise.config.help import common_help, section_help

        kind = COMMANDS[parser.prog.split()[-1]].kind
        assert kind is not None
        shown = section_help(kind, topic) if topic else common_help(kind)
        with suppress(BrokenPipeError):  # of `| head`
            print(shown if topic else f"{parser.format_help()}\n{shown}", flush=True)
        parser.exit()


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"rollwise {rollwise.__version__}")
        parser.exit()


def make_parsers() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Make the parser of the command line, and that of each command, without the settings."""
    parser = argparse.ArgumentParser("rollwise", description=rollwise.__doc__)
    parser.add_argument("--version", nargs=0, action=_Version, help="show the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        about = f"{textwrap.fill(command.help, 79)}\n\nExample: rollwise {name} {command.example}"
        added = commands.add_parser(
            name,
            allow_abbrev=False,
            add_help=not command.settings,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            help=command.help,
            description=about,
        )
        for option, how in command.options.items():
            added.add_argument(option, **how)
        if command.settings:
            help = "show this, or a setting or section with types and limits"
            added.add_argument("-h", "--help", nargs="?", metavar="NAME", action=_Help, help=help)
            needed = command.options["--output"].get("required")
            output = "--output DIR" if needed else "[--output DIR]"
            added.usage = f"rollwise {name} [config] {output} [options] [--section.key VALUE]"
    return parser, commands.choices


@dataclass(frozen=True)
class Command:
    """A command: whose settings it has, if any, and its `options` for `add_argument`."""

    settings: str
    options: Mapping[str, dict[str, Any]]
    example: str
    help: str

    @property
    def kind(self) -> "type[CommandConfig] | None":
        """Its settings; None if it has none."""
        from rollwise.config import KINDS

        return KINDS[self.settings] if self.settings else None


def _start(options: argparse.Namespace, console: Console) -> int:
    """Run a command, which is imported now; returns the exit code."""
    if options.command == "doctor":
        from rollwise.commands.doctor import examine

        try_it = getattr(options, "try")
        return examine(options.config, options.json, try_it, _read_for_verl, options.gpu)
    if options.command == "report":
        from rollwise.commands.report import report

        report(options.folders, console)
        return 0
    from rollwise.config.reading import read_given, read_toml

    file = read_toml(options.config) if options.config else {}
    kind = COMMANDS[options.command].kind
    assert kind is not None
    layers = [file, read_given(kind, options.settings, file)]
    if options.command == "verl":
        from rollwise.integrations.verl.command import run

        with nullcontext() if options.print else locked(options.output):
            return run(layers, options.output, options.resume, options.print)
    if options.command == "train" and options.print:
        from rollwise.commands.described import resolved

        print("\n".join(resolved(*layers)))
        return 0
    if options.command == "plan":
        from rollwise.commands.plan import plan

        plan(layers, options.output, console)
    else:
        _run_in_folder(layers, options, console)
    return 0


def _read_for_verl(given: Mapping[str, Any]) -> "TrainConfig":
    from rollwise.integrations.verl.settings import read_settings

    return read_settings([given])[0]


def _run_in_folder(
    layers: Sequence[Mapping[str, Any]], options: argparse.Namespace, console: Console
) -> None:
    """Run a command that can be resumed in its folder: the function NAME of `commands.NAME`."""
    from rollwise.commands.folder import folder_of, say_how_to_resume

    command = getattr(import_module(f"rollwise.commands.{options.command}"), options.command)
    with folder_of(options.output, options.resume) as folder:
        try:
            command(layers, folder, options.resume, console)
        except KeyboardInterrupt:
            with suppress(OSError):  # after SIGHUP there is no terminal
                say_how_to_resume(options.command, folder, console)
            raise


def _flag(help: str) -> dict[str, Any]:
    return {"action": "store_true", "help": help}


def _folder(help: str, **others: Any) -> dict[str, Any]:
    return {"type": Path, "help": help, **others}


CONFIG = {"config": {"nargs": "?", "type": Path, "help": "a TOML file with settings"}}
RESUME = {
    "--resume": _flag("resume with the recorded settings (repeating the command also resumes)")
}
RESUMABLE = {**CONFIG, "--output": _folder("the run's folder (default: runs/DATE-TIME)"), **RESUME}

COMMANDS = {
    "train": Command(
        "train",
        {**RESUMABLE, "--print": _flag("print all settings, each with where it is from, and stop")},
        "--steps 20 --method grpo --output runs/first",
        "train a model; by default, the built-in model on the built-in task",
    ),
    "evaluate": Command(
        "evaluate",
        RESUMABLE,
        "--model.path runs/first --benchmarks running-sums",
        "evaluate a model on benchmarks; by default, the built-in ones (docs/evaluate.md)",
    ),
    "prepare": Command(
        "prepare",
        RESUMABLE,
        "--data.sources problems.jsonl --output runs/third",
        "clean problems for training, and select them by pass rate (docs/prepare.md)",
    ),
    "compare": Command(
        "compare",
        RESUMABLE,
        "methods.toml --seeds 4 --output runs/comparison",
        "train methods with several seeds; compare accuracy and cost (docs/compare.md)",
    ),
    "plan": Command(
        "plan",
        {**CONFIG, "--output": _folder("a folder for the tables")},
        "methods.toml --steps 64",
        "estimate each method's cost and signal per step without a model (docs/plan.md)",
    ),
    "report": Command(
        "",
        {"folders": _folder("folders of train, evaluate or compare, or of several", nargs="+")},
        "runs/first",
        "write report.html for a run, evaluation or comparison, or for all in a folder",
    ),
    "doctor": Command(
        "",
        {
            "config": {**CONFIG["config"], "help": "a TOML file with settings to check"},
            "--json": _flag("print JSON"),
            "--try": _flag("take one step of the largest size; report its memory and time"),
            "--gpu": {
                "type": float,
                "metavar": "GB",
                "help": "predict memory on a GPU of this size, not on this machine",
            },
        },
        "settings.toml --try",
        "check the installation or a settings file; exit code 0 if everything needed works",
    ),
    "verl": Command(
        "train",
        {
            **CONFIG,
            "--output": _folder("the run's folder", required=True),
            **RESUME,
            "--print": _flag("print verl's overrides, and stop"),
        },
        "settings.toml --output runs/verl --print",
        "train on many machines with verl; put its own settings into [verl] (docs/verl.md)",
    ),
}
