"""What a run shows: what is wrong with its data, and each step."""

import io
import signal

from rich.console import Console
from rich.text import Text

from rollwise.commands.train_display import TrainingDisplay
from rollwise.config import make_config

METRICS = {
    "step": 1,
    "reward": 0.25,
    "zero_variance_first": 0.53,
    "zero_variance_after": 0.09,
    "draws": 64,
    "tokens": 3000,
    "seconds": {"sampling": 2.0},
    "grader_failures": 0,
}


def test_all_of_a_step_can_be_read_on_a_terminal_of_80_columns():
    shown = io.StringIO()
    console = Console(file=shown, width=80, force_terminal=True, _environ={})
    display = TrainingDisplay(console, steps=lambda: 1000)
    accuracy = {"value": 0.61, "low": 0.5, "high": 0.7}
    display.on_step({"step": 0, "heldout": {"avg@8": accuracy}})
    more = {"step": 125, "draws": 1024, "draws_per_prompt": 4.0, "belief_skill": -0.02}
    display.on_step(METRICS | more)
    with console.capture() as capture:
        console.print(display._bar.get_renderable())
    figures, bar = Text.from_ansi(capture.get()).plain.splitlines()
    expected = "reward 0.25  held-out 0.61  belief -0.02  zero-variance 53→9 %  1,024 draws"
    assert figures.rstrip() == expected
    assert bar.startswith("step  125/1000 ") and "1.5k tok/s" in bar and "…" not in bar


def test_held_out_accuracy_and_belief_quality_stand_beside_the_reward():
    """The accuracy is that of the last evaluation; without a terminal a line is never broken."""
    shown = io.StringIO()
    display = TrainingDisplay(Console(file=shown, width=40), steps=lambda: 2)
    accuracy = {"value": 0.61, "low": 0.5, "high": 0.7}
    display.on_step({"step": 0, "heldout": {"avg@8": accuracy, "pass@8": accuracy}})
    display.on_step(METRICS | {"draws_per_prompt": 1.0, "belief_skill": 0.312})
    again = {"step": 2, "draws_per_prompt": 1.0, "heldout": {"avg@8": accuracy}}
    display.on_step(METRICS | again)
    assert shown.getvalue().splitlines()[-3:] == [
        "step    1  reward 0.25  held-out 0.61  belief 0.31  64 draws  1.5k tok/s",
        "step    2  reward 0.25  held-out 0.61  64 draws  1.5k tok/s",
        "step    2  held-out avg@8 0.610 [0.500, 0.700]",
    ]


class Interrupted(io.RawIOBase):
    """A terminal that SIGTERM reaches while the first thing is written to it."""

    def __init__(self):
        self.written = b""

    def writable(self):
        return True

    def write(self, data):
        first = not self.written
        self.written += bytes(data)
        if first:
            signal.raise_signal(signal.SIGTERM)
        return len(data)


def test_a_signal_that_comes_while_a_step_is_printed_ends_nothing_but_the_run():
    """Python refuses to write to a file in the middle of writing to it."""
    terminal = Interrupted()
    file = io.TextIOWrapper(io.BufferedWriter(terminal), "utf-8", write_through=True)
    with TrainingDisplay(Console(file=file, width=80), steps=lambda: 1) as display:
        display.on_step(METRICS | {"draws_per_prompt": 1.0})
        assert display.stop_requested
    file.flush()
    lines = terminal.written.decode().splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == ["step", "SIGTERM:"]


def test_what_goes_wrong_is_said_once_as_it_comes_and_not_again_after_resuming():
    config = make_config({"exit": {"type": "balanced"}}).model_dump(mode="json")
    line = METRICS | {"draws_per_prompt": 4.0, "trained_groups": 0}
    lines = [line | {"step": step} for step in range(1, 21)]
    shown = io.StringIO()
    console = Console(file=shown, width=80)
    display = TrainingDisplay(console, lambda: 20, config=config)
    for each in lines:
        display.on_step(each)
    said = " ".join(shown.getvalue().split())
    assert said.count("warning: No group is trained on (since step 1).") == 1
    assert "choose prompts by pass rate" in said
    again = io.StringIO()
    resumed = TrainingDisplay(
        Console(file=again, width=80), lambda: 30, 20, config=config, lines=lines
    )
    resumed.on_step(line | {"step": 25})
    assert "warning" not in again.getvalue()
