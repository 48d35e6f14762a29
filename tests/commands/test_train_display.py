"""What a run shows for each step."""

import io

import pytest
from rich.console import Console

from rollwise.commands.train_display import TrainingDisplay

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


@pytest.mark.parametrize(
    ("draws_per_prompt", "line"),
    [
        (4.0, "step    1  reward 0.25  zero-variance 53%→9%  64 draws  1.5k tok/s"),
        (1.0, "step    1  reward 0.25  64 draws  1.5k tok/s"),
    ],
)
def test_a_step_is_one_line(draws_per_prompt, line):
    """Of single responses no variance is shown, for they can have none."""
    shown = io.StringIO()
    display = TrainingDisplay(Console(file=shown, width=80), steps=lambda: 1)
    display.on_step(METRICS | {"draws_per_prompt": draws_per_prompt})
    assert shown.getvalue().rstrip() == line
