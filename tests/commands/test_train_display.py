"""What a run shows: what is wrong with its data, and each step."""

import io
import signal
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from rollwise.commands.show import progress
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
    more = {"step": 125, "draws": 1024, "draws_per_prompt": 4.0}
    display.on_step(METRICS | more)
    with console.capture() as capture:
        console.print(display._bar.get_renderable())
    figures, bar = Text.from_ansi(capture.get()).plain.splitlines()
    expected = "reward 0.25  zero-variance 53→9 %  1,024 draws"
    assert figures.rstrip() == expected
    assert bar.startswith("step  125/1000 ") and "1.5k tok/s" in bar and "…" not in bar


def test_held_out_accuracy_is_shown_where_it_was_measured_and_lines_are_never_broken():
    shown = io.StringIO()
    display = TrainingDisplay(Console(file=shown, width=40), steps=lambda: 2)
    accuracy = {"value": 0.61, "low": 0.5, "high": 0.7}
    display.on_step({"step": 0, "heldout": {"avg@8": accuracy, "pass@8": accuracy}})
    display.on_step(METRICS | {"draws_per_prompt": 1.0, "belief_skill": 0.312})
    again = {"step": 2, "draws_per_prompt": 1.0, "heldout": {"avg@8": accuracy}}
    display.on_step(METRICS | again)
    assert shown.getvalue().splitlines()[-3:] == [
        "step    1  reward 0.25  belief skill 0.31  64 draws  1.5k tok/s",
        "step    2  reward 0.25  64 draws  1.5k tok/s",
        "step    2  held-out avg@8 0.610 [0.500, 0.700]",
    ]


def test_responses_without_an_answer_are_told_at_the_first_step():
    shown = io.StringIO()
    display = TrainingDisplay(Console(file=shown, width=400), steps=lambda: 100, config={})
    display.on_step(METRICS | {"draws_per_prompt": 1.0, "unanswered": 60})
    assert "no final answer in 60 of 64 responses" in shown.getvalue()


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
    config = asdict(make_config({"method": "reinforce_ada"}))
    line = METRICS | {"draws_per_prompt": 4.0, "trained_groups": 0}
    lines = [line | {"step": step} for step in range(1, 21)]
    shown = io.StringIO()
    console = Console(file=shown, width=80)
    display = TrainingDisplay(console, lambda: 20, config=config)
    for each in lines:
        display.on_step(each)
    said = " ".join(shown.getvalue().split())
    assert said.count("warning: No group is trained on (since step 1).") == 1
    assert "Choose prompts by pass rate" in said
    again = io.StringIO()
    resumed = TrainingDisplay(
        Console(file=again, width=80), lambda: 30, 20, config=config, lines=lines
    )
    resumed.on_step(line | {"step": 25})
    assert "warning" not in again.getvalue()


def test_a_warning_that_no_longer_holds_is_taken_back_as_the_report_does():
    config = asdict(make_config({"method": "reinforce_ada"}))
    shown = io.StringIO()
    display = TrainingDisplay(Console(file=shown, width=200), lambda: 30, config=config)
    for step in range(1, 21):
        trained = {"draws_per_prompt": 4.0, "trained_groups": int(step > 10)}
        display.on_step(METRICS | trained | {"step": step})
    said = [line for line in shown.getvalue().splitlines() if "No group" in line]
    assert said[1:] == ["no longer: No group is trained on"]
    assert said[0].startswith("warning:")


def test_the_time_left_is_in_each_line_once_two_steps_are_known():
    shown = io.StringIO()
    display = TrainingDisplay(Console(file=shown, width=200), lambda: 10)
    now = 0
    display._bar.get_time = lambda: now
    for step in range(1, 5):
        now += 60
        display.on_step(METRICS | {"step": step, "draws_per_prompt": 1.0})
    ends = [line.split("tok/s")[1].strip() for line in shown.getvalue().splitlines()]
    assert ends == ["", "0:08:00 left", "0:07:00 left", "0:06:00 left"]


def test_a_long_command_says_where_it_is_though_nobody_watches():
    shown = io.StringIO()
    with progress(Console(file=shown, width=80), "Training", 4, "runs") as advance:
        for _ in range(400):
            advance(0.01)
    lines = [line.split(",")[0] for line in shown.getvalue().splitlines()]
    assert len(lines) == 20
    assert (lines[0], lines[-1]) == ("Training: 0.2 of 4 runs", "Training: 4 of 4 runs")
