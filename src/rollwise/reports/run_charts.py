"""The charts of a run, by what its metrics have."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rollwise.records import Row
from rollwise.reports.charts import SMOOTHED, Chart, Floats, chart, evenly, line, moving_mean

MOST_POINTS = 800
"""Points of a line; the steps of a longer run are averaged over spans of equal length."""

MOST_EVALUATIONS = 400
"""Evaluations that are shown; of more, evenly spaced ones, with the first and the last."""

BINS = 10
"""Parts of the range of what was believed, in charts of pass rates against it."""

OF_GROUPS = ("zero_variance", "exits", "draws")
"""Charts that say nothing of single responses."""


@dataclass
class RunCharts:
    """The charts of a run, and what was left out of them.

    Args:
        lines: Its metrics, at least one line.
        points: The most points of a line.
    """

    lines: Sequence[Row]
    points: int = MOST_POINTS
    charts: list[Chart] = field(default_factory=list)
    grids: dict[str, dict[str, Any]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps = [row for row in self.lines if row["step"] > 0]
        numbers = np.arange(len(self.steps))
        self._spans = (
            np.array_split(numbers, min(len(numbers), self.points)) if len(numbers) else []
        )
        self.smoothed = min(len(numbers), max(SMOOTHED, len(numbers) // 100))
        self._cost = _costs(self.lines)
        self._add_evaluations()
        if self.steps:
            self._add_steps()
            for make in STEP_CHARTS:
                made = make(self)
                if made is not None and not (self._single and made["id"] in OF_GROUPS):
                    self.charts.append(made)

    @property
    def _single(self) -> bool:
        """Whether every prompt got a single response."""
        return all(row["draws"] <= row["prompts"] for row in self.steps)

    def data(self) -> dict[str, Any]:
        """Return what the page's script reads."""
        return {"charts": self.charts, "grids": self.grids}

    def values(self, name: str) -> Floats:
        """Return a figure of each step, shape (S,); NaN where a step has none."""
        return self.of_steps([row.get(name) for row in self.steps])

    @staticmethod
    def of_steps(found: Sequence[Any]) -> Floats:
        """Make figures of each step, shape (S,), with NaN for None."""
        return np.array([np.nan if value is None else float(value) for value in found])

    def known(self, name: str) -> bool:
        """Whether any step has a figure."""
        return any(row.get(name) is not None for row in self.steps)

    def averaged(self, values_S: Floats) -> Floats:
        """Average a figure of each step over the spans of the grid; NaN where none is known."""
        return np.array([_mean(values_S[span]) for span in self._spans])

    def figure(self, label: str, values_S: Floats, colour: int = 0) -> list[dict[str, Any]]:
        """Draw a figure of each step faintly, and its moving mean."""
        plain = line(label, self.averaged(values_S), style="points", colour=colour)
        if len(values_S) < 3:
            return [plain]
        smooth = self.averaged(moving_mean(values_S, self.smoothed))
        name = f"{label}, mean of {self.smoothed} steps"
        own = {"label": "of the step", "style": "faint", "group": name}
        return [plain | own, line(name, smooth, colour=colour)]

    def _add_steps(self) -> None:
        ends = [int(span[-1]) for span in self._spans]
        first = len(self.lines) - len(self.steps)
        if len(self.steps) > 2:
            self.remarks.append(
                f"Thick lines are means of {self.smoothed} steps, thin ones single steps."
            )
        self.grids["steps"] = {name: cost[first:][ends] for name, cost in self._cost.items()}
        if len(self.steps) > self.points:
            self.remarks.append(
                f"Each point of a chart is the mean of about {len(self.steps) / self.points:.0f} "
                f"steps: the run has {len(self.steps):,}, and {self.points} points are shown."
            )

    def _add_evaluations(self) -> None:
        places = [place for place, row in enumerate(self.lines) if "heldout" in row]
        if not places:
            return
        if len(places) > MOST_EVALUATIONS:
            self.remarks.append(
                f"Of {len(places):,} evaluations, {MOST_EVALUATIONS} evenly spaced ones are shown."
            )
            places = [places[at] for at in evenly(len(places), MOST_EVALUATIONS)]
        self.grids["evaluations"] = {name: cost[places] for name, cost in self._cost.items()}
        figures = [self.lines[place]["heldout"] for place in places]
        lines = [
            line(
                name,
                [each[name]["value"] for each in figures],
                low=[each[name]["low"] for each in figures],
                high=[each[name]["high"] for each in figures],
                points=True,
            )
            for name in figures[0]
        ]
        about = "On problems that are never trained on; bands are 95 % intervals over problems."
        title = "Held-out accuracy"
        self.charts.append(
            chart("heldout", title, lines, "evaluations", about=about, low=0, high=1, wide=True)
        )


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _costs(lines: Sequence[Row]) -> dict[str, Any]:
    return {
        "steps": np.array([row["step"] for row in lines]),
        "draws": np.cumsum([int(row.get("draws", 0)) for row in lines]),
        "tokens": np.cumsum([int(row.get("tokens", 0)) for row in lines]),
        "minutes": np.array([row["elapsed"] / 60 for row in lines]),
    }


def _simple(
    name: str, title: str, *figures: tuple[str, str], **others: Any
) -> Callable[[RunCharts], Chart | None]:
    """Make a chart of figures that a step has under a name: (name, label) of each."""

    def make(run: RunCharts) -> Chart | None:
        known = [(figure, label) for figure, label in figures if run.known(figure)]
        lines = [
            part
            for colour, (figure, label) in enumerate(known)
            for part in run.figure(label, run.values(figure), colour)
        ]
        return chart(name, title, lines, **others) if lines else None

    return make


def _draws(run: RunCharts) -> Chart | None:
    rounds = max((len(row["draws_by_round"]) for row in run.steps), default=0)
    if rounds > 1:
        lines = [
            line(
                f"round {r + 1}",
                run.averaged(run.of_steps([_at(row["draws_by_round"], r) for row in run.steps])),
            )
            for r in range(rounds)
        ]
        title = "Draws of a prompt, by round"
        about = "A draw is one response; each round draws for the prompts that have not ended."
        return chart("draws", title, lines, about=about, low=0, stacked=True)
    surplus = _per_prompt(run, [row["surplus_draws"] for row in run.steps])
    lines = run.figure("all", run.values("draws_per_prompt"))
    lines += run.figure("surplus", surplus, colour=1)
    about = "A draw is one response. Surplus draws came after their prompt had ended: not used."
    return chart("draws", "Draws of a prompt", lines, about=about, low=0)


def _per_prompt(run: RunCharts, counts: Sequence[int]) -> Floats:
    prompts = np.maximum(run.of_steps([row["prompts"] for row in run.steps]), 1)
    return run.of_steps(counts) / prompts


def _at(values: Sequence[float], place: int) -> float | None:
    return values[place] if place < len(values) else None


def _exits(run: RunCharts) -> Chart:
    lines = [
        line(
            reason,
            run.averaged(_per_prompt(run, [row["exits"][reason] for row in run.steps])),
            colour=colour,
        )
        for reason, colour in (("satisfied", 2), ("exhausted", 1), ("futile", 7))
    ]
    about = (
        "Why sampling of a prompt ended. Satisfied: the exit rule was met; exhausted: its draws were "
        "spent before; futile: it was given up, because meeting the rule had become unlikely."
    )
    return chart("exits", "Exits", lines, about=about, unit="share", low=0, high=1, stacked=True)


def _seconds(run: RunCharts) -> Chart:
    phases = list(dict.fromkeys(phase for row in run.steps for phase in row["seconds"]))
    lines = [
        line(phase, run.averaged(run.of_steps([row["seconds"].get(phase, 0) for row in run.steps])))
        for phase in phases
    ]
    return chart("seconds", "Seconds of a step, by phase", lines, low=0, stacked=True)


def _competence(run: RunCharts) -> Chart | None:
    if not run.known("competence"):
        return None
    low, middle, high = (run.averaged(run.values(f"difficulty_p{q}")) for q in (10, 50, 90))
    lines = [
        line("difficulty: median, 10 to 90 %", middle, low=low, high=high, colour=1),
        line("competence", run.averaged(run.values("competence"))),
    ]
    about = "Both on one scale of logits, as the prompt sampler rates them."
    title = "Difficulty of the prompts, competence of the model"
    return chart("competence", title, lines, about=about)


def _calibration(
    name: str, title: str, label: str, about: str, diagonal: bool
) -> Callable[[RunCharts], Chart | None]:
    """Pass rates against what was believed: of the first, middle and last third of the steps."""

    def make(run: RunCharts) -> Chart | None:
        thirds = [third for third in np.array_split(np.arange(len(run.steps)), 3) if len(third)]
        pairs = [
            np.array([pair for at in third for pair in run.steps[at].get(name) or ()], dtype=float)
            for third in thirds
        ]
        found = [part.reshape(-1, 2)[:, 0] for part in pairs if part.size]
        if not found:
            return None
        believed = np.concatenate(found)
        low, high = (0.0, 1.0) if diagonal else (believed.min(), believed.max())
        ends = np.linspace(low, high, BINS + 1)
        middles = (ends[:-1] + ends[1:]) / 2
        run.grids[name] = {label: middles}
        lines = [line("as expected", middles, style="dashed", colour=7)] if diagonal else []
        for colour, (third, part) in enumerate(zip(thirds, pairs, strict=True)):
            first, last = run.steps[third[0]]["step"], run.steps[third[-1]]["step"]
            which = np.clip(np.digitize(part.reshape(-1, 2)[:, 0], ends) - 1, 0, BINS - 1)
            rates = [_mean(part.reshape(-1, 2)[which == place, 1]) for place in range(BINS)]
            span = f"steps {first} to {last}" if first != last else f"step {first}"
            lines.append(line(span, rates, colour=colour, points=True))
        return chart(name, title, lines, name, about=about, low=0, high=1)

    return make


STEP_CHARTS: Sequence[Callable[[RunCharts], Chart | None]] = (
    _simple(
        "reward",
        "Reward of the first draws",
        ("reward", "reward"),
        about="An ordinary sample of the policy, on the prompts that were chosen.",
        low=0,
    ),
    _simple(
        "belief",
        "Belief quality",
        ("belief_skill", "Brier skill score"),
        about="1: every response was foreseen; 0: no better than one pass rate for all prompts of "
        "the step; below 0: worse.",
        high=1,
    ),
    _simple(
        "zero_variance",
        "Zero-variance groups",
        ("zero_variance_first", "first draws"),
        ("zero_variance_after", "groups trained on"),
        about="Share of prompts whose responses all have one reward.",
        unit="share",
        low=0,
        high=1,
    ),
    _exits,
    _draws,
    _simple("tokens", "Tokens of a step", ("tokens", "tokens"), low=0),
    _simple(
        "response_tokens",
        "Length of a response",
        ("response_tokens", "tokens"),
        about="Of the first draws.",
        low=0,
    ),
    _simple(
        "truncated",
        "Truncated responses",
        ("truncated", "truncated"),
        about="Share of the first draws that were cut at the limit of new tokens.",
        unit="share",
        low=0,
    ),
    _simple(
        "entropy",
        "Entropy",
        ("entropy", "nats a token"),
        about="How uncertain the model is of its next token; near 0 all responses are alike.",
        low=0,
    ),
    _simple(
        "clipping",
        "Clipping",
        ("clip_fraction", "clipped tokens"),
        ("importance_truncated", "importance weights at the cap"),
        about="Clipped tokens teach nothing: the policy has moved too far from the one that drew "
        "them. An importance weight is a token's probability under the learner over that under the "
        "engine; more than `learner.importance_cap` is cut to it.",
        unit="share",
        low=0,
    ),
    _simple(
        "gradient",
        "Norm of the gradient",
        ("grad_norm", "norm"),
        about="Before it is cut to `learner.max_grad_norm`.",
        low=0,
    ),
    _competence,
    _calibration(
        "pass_rate_by_expected",
        "Pass rate against what was expected",
        "expected pass rate",
        "Where the belief is right, a line follows the dashed one.",
        diagonal=True,
    ),
    _calibration(
        "pass_rate_by_difficulty",
        "Pass rate against difficulty",
        "difficulty",
        "Where the difficulties are right, a line falls.",
        diagonal=False,
    ),
    _seconds,
)
"""Each returns None for a run without its figures."""
