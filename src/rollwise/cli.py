"""The command line: parses arguments, and calls the command."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic_settings import CliSettingsSource, SettingsError
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
    add_settings,
    explain_unknown,
    read_toml,
    with_plugins,
)
from rollwise.config.command_line import plugins_given
from rollwise.errors import (
    ConfigError,
    RollwiseError,
    half_of_a_pair,
    is_out_of_memory,
    one_line,
)
from rollwise.files import is_locked, locked
from rollwise.signals import Terminated, terminated_by_signals

Commands = Any  # argparse's class of it is private
Plugins = Mapping[str, Any] | None
"""Settings that name plug-ins, whose own settings are options too; None for a command that is not
called, which is left without options, because it takes long to make them."""

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
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            print(
                f"rollwise: there is not enough memory: {one_line(error)}; a lower "
                "`engine.batch_size`, `engine.max_new_tokens` or `prompts.batch_size` needs less",
                file=sys.stderr,
            )
            return RollwiseError.exit_code


def make_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Make the parser; only the command that the arguments name gets its options."""
    called = next((word for word in arguments if not word.startswith("-")), "")
    plugins = plugins_given(arguments) if called in ADD else None
    parser = argparse.ArgumentParser("rollwise", description=rollwise.__doc__)
    parser.add_argument("--version", action="version", version=f"rollwise {rollwise.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_report(commands)
    _add_doctor(commands)
    for name, add in ADD.items():
        add(commands, plugins if name == called else None)
    return parser


def _run(arguments: Sequence[str]) -> int:
    for argument in arguments:
        if half_of_a_pair(argument):  # as bytes that are not UTF-8 arrive
            raise ConfigError(f"{os.fsencode(argument)!r} on the command line is not UTF-8")
    parser = make_parser(arguments)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(_explain(unknown, getattr(options, "kind", TrainConfig)))
    console = Console(highlight=False)
    # Output that other programs read stays free of remarks.
    is_read = getattr(options, "print", False) or getattr(options, "json", False)
    remarks = Console(highlight=False, stderr=True) if is_read else console
    handler = RichHandler(console=remarks, show_time=False, show_path=False, show_level=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    logging.getLogger("rollwise").setLevel(logging.INFO)
    return int(options.run(options, console))


def _explain(unknown: Sequence[str], kind: type[CommandConfig]) -> str:
    name = unknown[0].removeprefix("--").partition("=")[0]
    if unknown[0].startswith("--"):
        return explain_unknown(name, kind=kind)
    return f"unrecognized arguments: {' '.join(unknown)}"


Layers = list[dict[str, object]]


@dataclass(frozen=True)
class RunCommand:
    """A command that works in a run's folder, and can be resumed there.

    `rollwise.commands.NAME` has the function NAME, which is called with the layers of settings, the
    folder, whether it resumes, and the console; it returns whether it finished.

    Attributes:
        kind: Its settings.
        help: A line on it.
        description: What `--help` says.
        options: Options that its usage shows beside those of all.
    """

    kind: type[CommandConfig]
    help: str
    description: str
    options: str = "[--section.key VALUE]"

    def add(self, name: str, commands: Commands, plugins: Plugins) -> None:
        """Add it to a parser."""
        parser = commands.add_parser(
            name,
            allow_abbrev=False,
            usage=f"rollwise {name} [config] [--output DIR] {self.options}",
            help=self.help,
            description=self.description,
        )
        _add_run_options(parser, self.kind, plugins, partial(_call, name))


def _call(name: str, layers: Layers, folder: Path, resume: bool, console: Console) -> bool:
    command = getattr(import_module(f"rollwise.commands.{name}"), name)
    return bool(command(layers, folder, resume, console))


RUN_COMMANDS = {
    "train": RunCommand(
        TrainConfig,
        "train a model; with nothing else, the built-in model on the built-in task",
        "Train a model by reinforcement learning with adaptive sampling. Settings "
        "come from the defaults, then the TOML file, then --section.key VALUE. Some defaults "
        "depend on the model, the task and the exit rule: docs/settings.md says how. Interrupted, "
        "the same command with the same --output resumes; --resume takes the recorded settings.",
        "[--resume] [--section.key VALUE]",
    ),
    "evaluate": RunCommand(
        EvaluateConfig,
        "evaluate a model on benchmarks; with nothing else, the built-in ones",
        "Draw responses of a model to the problems of benchmarks: avg@k, pass@k, "
        "maj@k with intervals, and a comparison with another evaluation. Interrupted, the same "
        "command with the same --output resumes. See docs/evaluate.md.",
    ),
    "prepare": RunCommand(
        PrepareConfig,
        "prepare problems for training: clean them, and choose them by pass rate",
        "Read problems, remove duplicates, check reference solutions, estimate the "
        "pass rate of each by a model's responses, and write those within a range. Interrupted, "
        "the same command with the same --output resumes. See docs/prepare.md.",
    ),
    "compare": RunCommand(
        CompareConfig,
        "compare methods over seeds, by what they reach and what it costs",
        "Train methods with several seeds, or read runs that exist, and compare their "
        "held-out accuracy at equal cost, with intervals over seeds; or replay recorded rewards. "
        "Interrupted, the same command with the same --output resumes. See docs/compare.md.",
        "[--folders RUN,RUN] [--rewards PATH] [--key VALUE]",
    ),
}


def _add_run_options(
    parser: argparse.ArgumentParser,
    kind: type[CommandConfig],
    plugins: Plugins,
    command: Callable[[Layers, Path, bool, Console], bool],
) -> None:
    """Give a command its file, its folder and its settings."""
    if plugins is None:
        return
    kind = with_plugins(kind, plugins)
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file with settings")
    parser.add_argument("--output", type=Path, help="the run's folder (default: runs/DATE-TIME)")
    what = "from its checkpoint" if issubclass(kind, TrainConfig) else "with its settings"
    parser.add_argument("--resume", action="store_true", help=f"resume the run in --output {what}")
    settings = add_settings(parser, kind)

    def run(options: argparse.Namespace, console: Console) -> int:
        layers = [read_toml(options.config)] if options.config else []
        layers.append(_given(settings, options))
        if options.resume and options.output is None:
            raise ConfigError("--resume needs --output, the folder of the run to resume")
        folder = options.output or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
        with locked(folder):
            return 0 if command(layers, folder, options.resume, console) else INTERRUPTED

    parser.set_defaults(run=run, kind=kind)


def _given(
    settings: CliSettingsSource[argparse.ArgumentParser], options: argparse.Namespace
) -> dict[str, object]:
    """Return the settings of the command line, with lists and tables parsed."""
    try:
        return dict(settings(parsed_args=options)())
    except SettingsError as error:
        # It names the setting alone in its text: "Parsing error encountered for NAME: REASON".
        name, _, reason = str(error).partition(" for ")[2].partition(": ")
        raise ConfigError(
            f"`{name}`: on the command line a list is written as a,b and a table as JSON, such as "
            f"'{{\"count\": 4}}' ({reason})"
        ) from None


def _add_plan(commands: Commands, plugins: Plugins) -> None:
    parser = commands.add_parser(
        "plan",
        allow_abbrev=False,
        usage="rollwise plan [config] [--output DIR] [--section.key VALUE]",
        help="predict what methods cost and teach a step, before anything is trained",
        description="Take steps of each method with pass rates and prices that are known, in "
        "virtual time and without a model: draws, tokens, seconds, zero-variance groups, and the "
        "signal that is learned from. See docs/plan.md.",
    )
    if plugins is None:
        return
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file with settings")
    parser.add_argument("--output", type=Path, help="a folder for the tables and the report")
    settings = add_settings(parser, PlanConfig)

    def run(options: argparse.Namespace, console: Console) -> int:
        from rollwise.commands.plan import plan

        layers = [read_toml(options.config)] if options.config else []
        plan([*layers, _given(settings, options)], options.output, console)
        return 0

    parser.set_defaults(run=run, kind=PlanConfig)


def _add_report(commands: Commands) -> None:
    parser = commands.add_parser(
        "report",
        help="write report.html for a run's folder",
        description="Write a self-contained report.html into the folder of a run.",
    )
    parser.add_argument("folder", type=Path, help="the run's folder")

    def run(options: argparse.Namespace, console: Console) -> int:
        from rollwise.reports import write_report

        written = write_report(options.folder, goes_on=is_locked(options.folder))
        console.print(f"report: {written}", markup=False)
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


def _add_verl(commands: Commands, plugins: Plugins) -> None:
    parser = commands.add_parser(
        "verl",
        allow_abbrev=False,
        usage="rollwise verl [config] --output DIR [options] [--section.key VALUE]",
        help="train on many machines, by verl",
        description="Train by verl, from the same settings as `train`; a table [verl] of the TOML "
        "file holds verl's own, in its words. Needs the extra `verl`: docs/verl.md.",
    )
    if plugins is None:
        return
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file with settings")
    parser.add_argument("--output", type=Path, required=True, help="the run's folder")
    parser.add_argument(
        "--resume", action="store_true", help="resume the run in --output from its checkpoint"
    )
    parser.add_argument(
        "--print", action="store_true", help="print verl's overrides, a line each, and stop"
    )
    settings = add_settings(parser, with_plugins(TrainConfig, plugins))

    def run(options: argparse.Namespace, console: Console) -> int:
        from rollwise.integrations.verl.command import run

        layers = [read_toml(options.config)] if options.config else []
        layers.append(_given(settings, options))
        with nullcontext() if options.print else locked(options.output):
            return run(layers, options.output, options.resume, options.print)

    parser.set_defaults(run=run)


ADD: dict[str, Callable[[Commands, Plugins], None]] = {
    **{name: partial(command.add, name) for name, command in RUN_COMMANDS.items()},
    "plan": _add_plan,
    "verl": _add_verl,
}
"""What adds each command that has settings."""
