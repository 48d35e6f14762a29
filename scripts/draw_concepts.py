"""Draw the pictures of docs/concepts.md into docs/images.

python scripts/draw_concepts.py

Each is computed by the library itself, from seeds and a recorded run.
"""

import gzip
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rollwise as rw
from rollwise.beliefs import LogitKalman
from rollwise.sampling.draws import Draw
from rollwise.sampling.objectives import PassRateObjective
from rollwise.simulate.engine import Lengths, SimulatedEngine, simulate
from rollwise.step import Response

Floats = NDArray[np.float64]
ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "benchmarks/predictions/histories/grpo-2-to-10-terms.csv.gz"
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#aa4499", "#8d99ae"
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": ["sans-serif"],
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "svg.fonttype": "none",
    "svg.hashsalt": "rollwise",
}


def signal_collapse(left: Axes, right: Axes) -> None:
    """How often a group teaches nothing: by pass rate, and over a recorded run."""
    rates = np.linspace(0, 1, 201)
    for size, colour in ((4, ORANGE), (8, PURPLE), (16, BLUE)):
        alike = rates**size + (1 - rates) ** size
        left.plot(rates, alike, color=colour, label=f"{size} responses")
    left.set(xlabel="pass rate of the prompt", ylabel="chance that all are alike", ylim=(0, 1))
    left.legend(loc="upper center")
    with gzip.open(RECORDED, "rt") as file:
        step, _, correct, drawn = np.loadtxt(file, delimiter=",").T
    last = [np.isin(step, range(end - 9, end + 1)) for end in range(10, int(step.max()) + 1, 10)]
    none = [np.mean(correct[part] == 0) for part in last]
    all_ = [np.mean(correct[part] == drawn[part]) for part in last]
    ends = np.arange(1, len(last) + 1) * 10
    names = ["all incorrect", "all correct"]
    right.stackplot(ends, none, all_, labels=names, colors=[ORANGE, GREEN], alpha=0.8)
    right.set(xlabel="step of a run with GRPO", ylabel="share of its groups", ylim=(0, 1))
    right.legend(loc="upper right")


def rounds_and_streaming(upper: Axes, lower: Axes) -> None:
    """What each slot of an engine does, in rounds and streamed, for the same prompts."""
    rates = {place: rate for place, rate in enumerate((0.15, 0.3, 0.5, 0.7, 0.85, 0.95))}
    schedules = (rw.Rounds(size=4, rounds=3), rw.Streamed(max_samples=12, speculation=0.25))
    for axes, schedule in zip((upper, lower), schedules, strict=True):
        engine = Watched(rates, Lengths(median=100, sigma=0.7, longest=500), slots=8)
        session = rw.RolloutSession(rates, rw.Balanced(1, 1), schedule, seed=3)
        simulate(session, engine)
        free = [0.0] * engine.slots
        for began, ended, draw in sorted(engine.ended, key=lambda bar: bar[0]):
            slot = next(place for place, since in enumerate(free) if since <= began)
            free[slot] = ended
            pooled = draw.index < len(session.pools[draw.key])
            colour = COLOURS[int(draw.key)]
            axes.barh(
                slot,
                ended - began,
                left=began,
                color=colour if pooled else "white",
                edgecolor=colour,
                hatch=None if pooled else "////",
            )
        idle = 1 - engine.busy / (engine.slots * engine.now)
        axes.set_title(
            f"{type(schedule).__name__.lower()}: {engine.now:.0f} s, {engine.tokens:,} tokens, "
            f"{idle:.0%} of the slots idle",
            loc="left",
            fontsize=10,
        )
        axes.set(ylabel="slots", yticks=[])
        axes.grid(False)
    lower.set_xlabel("seconds (one colour for each prompt; hatched: surplus)")


class Watched(SimulatedEngine):
    """The simulated engine, which keeps when each draw began and ended."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.ended: list[tuple[float, float, Draw]] = []

    def _advance(self) -> list[tuple[Draw, Response]]:
        self._fill()
        running = dict(self._running)
        found = super()._advance()
        self.ended += [(running[draw].began, running[draw].ends, draw) for draw, _ in found]
        return found

    def _abandon(self, draw: Draw) -> int:
        if draw in self._running:
            self.ended.append((self._running[draw].began, self.now, draw))
        return super()._abandon(draw)


def belief_and_worth(left: Axes, right: Axes) -> None:
    """What is believed of two prompts while the policy learns, and what a draw is worth."""
    steps, total = 40, 300
    generator = np.random.default_rng(7)
    offsets = generator.normal(0, 1.3, total)
    offsets[:2] = 1.3, -1.3
    truths = 1 / (1 + np.exp(1 - offsets[:, None] - 0.06 * np.arange(steps)))
    belief = LogitKalman(total)
    means, strengths = np.empty((2, steps)), np.empty((2, steps))
    for step in range(steps):
        means[:, step], strengths[:, step] = belief.believe(np.arange(2))
        now = [place for place, visits in enumerate(VISITS) if step in visits]
        others = generator.choice(np.arange(2, total), 64, replace=False)
        visited = np.concatenate([np.array(now, dtype=int), others])
        correct = (generator.random(len(visited)) < truths[visited, step]).astype(int)
        belief.learn(visited, correct, np.ones(len(visited), dtype=int))
        for place, solved in zip(now, correct, strict=False):
            left.plot(step, 1.05 if solved else -0.05, "^" if solved else "v", color=PAIR[place])
    spreads = np.sqrt(means * (1 - means) / (strengths + 1))
    for mean, spread, truth, colour, name in zip(
        means, spreads, truths, PAIR, ("easy prompt", "hard prompt"), strict=False
    ):
        left.plot(mean, color=colour, label=name)
        band = mean - spread, mean + spread
        left.fill_between(np.arange(steps), *band, color=colour, alpha=0.15, linewidth=0)
        left.plot(truth, color=colour, linewidth=1, linestyle=":")
    left.set(xlabel="step", ylabel="believed pass rate", ylim=(-0.1, 1.1))
    left.legend(loc="upper left", bbox_to_anchor=(0.02, 0.92), fontsize=8.5)
    rates = np.linspace(0.005, 0.995, 199)
    for name, colour in OBJECTIVE_COLOURS.items():
        worth = weights(name, rates) ** 2 * rates * (1 - rates)
        right.plot(rates, worth / worth[99], color=colour, label=name)  # rates[99] is ½
    right.set(xlabel="believed pass rate", ylabel="worth of a draw, 1 at ½", ylim=(0, 3))
    right.legend(loc="upper right")


def weights(objective: str, rates: Floats) -> Floats:
    """f′(p) of an objective, from the objective's own f′(p)·p(1 − p)."""
    chosen = rw.sampling.OBJECTIVES[objective]()
    assert isinstance(chosen, PassRateObjective)
    variance = rates * (1 - rates)
    return np.array([chosen.weight(p, v) for p, v in zip(rates, variance, strict=True)]) / variance


def what_an_objective_weighs(left: Axes, right: Axes) -> None:
    """The weight of a prompt's gradient by its pass rate, and a step's pull on four prompts."""
    rates = np.linspace(0.02, 0.98, 193)
    for name, colour in OBJECTIVE_COLOURS.items():
        left.plot(rates, weights(name, rates), color=colour, label=name)
    published = ((1 - rates) / rates + rates / (1 - rates)) / 2
    left.plot(rates, published, color=GREY, linestyle="--", label="reference, half-half")
    left.set(xlabel="pass rate of the prompt", ylabel="weight of its gradient", yscale="log")
    left.set(ylim=(0.4, 50))
    left.legend(loc="upper center", ncols=2, fontsize=8.5)
    prompts = np.array([0.05, 0.25, 0.5, 0.9])
    for place, (name, colour) in enumerate(OBJECTIVE_COLOURS.items()):
        pull = weights(name, prompts) * prompts * (1 - prompts)  # ∇p = p(1 − p)·∇logit
        places = np.arange(len(prompts)) + (place - 1.5) * 0.2
        right.bar(places, pull / pull.sum(), width=0.18, color=colour)
    right.set(xlabel="pass rate of the prompt", ylabel="share of the step's pull on logits")
    right.set_xticks(range(len(prompts)), [f"{rate:g}" for rate in prompts])
    right.grid(axis="x", visible=False)


def what_staleness_does(left: Axes, right: Axes) -> None:
    """Responses that were drawn some updates ago: the gradient's direction, and its noise."""
    ages = np.arange(0, 17)
    caps = {
        "unweighted": (0.0, ORANGE),
        "weighted, at most 2": (2.0, BLUE),
        "weighted": (1e9, GREY),
    }
    runs = [toy_run(np.random.default_rng(seed), updates=16) for seed in range(20)]
    for name, (cap, colour) in caps.items():
        found = np.mean([[of_age(run, int(age), cap) for age in ages] for run in runs], axis=0)
        left.plot(ages, found[:, 0], color=colour, label=name)
        right.plot(ages, found[:, 1], color=colour, label=name)
    left.set(ylabel="cosine to the true gradient", ylim=(0.9, 1.005))
    right.set(ylabel="share of the draws that count", ylim=(0, 1.05))
    for axes in (left, right):
        axes.set(xlabel="updates since a response was drawn", xticks=range(0, 17, 4))
    left.legend(loc="lower left")


KINDS, CORRECT = 200, 20
"""Of the toy: how many responses its one prompt may get, and how many of them are correct."""


def toy_run(generator: np.random.Generator, updates: int) -> list[Floats]:
    """Return a policy after each update of a noisy batch: a probability for each response."""
    logits = generator.normal(0, 1.5, KINDS)
    policies = []
    for _ in range(updates + 1):
        policy = np.exp(logits - logits.max())
        policy /= policy.sum()
        policies.append(policy)
        batch = generator.choice(KINDS, 64, p=policy)
        advantages = (batch < CORRECT) - policy[:CORRECT].sum()
        push = np.bincount(batch, advantages, minlength=KINDS) / 64
        logits = logits + 2.0 * (push - policy * push.sum()) + generator.normal(0, 0.05, KINDS)
    return policies


def of_age(policies: Sequence[Floats], age: int, cap: float) -> tuple[float, float]:
    """Return what is left, in direction and in draws, of responses drawn `age` updates ago.

    Σ q(y)·w(y)·(r(y) − b)·∇log π(y) is the gradient expected of draws from q with weights w, here
    with respect to the logits; (E w)²/E w² of the draws count (the effective sample size).
    """
    now, old = policies[-1], policies[-1 - age]
    weight = np.minimum(now / old, cap) if cap else np.ones_like(now)
    reward = (np.arange(KINDS) < CORRECT).astype(float)
    pushed, wanted = old * weight * (reward - old @ reward), now * (reward - now @ reward)
    gradient = pushed - now * pushed.sum()
    cosine = gradient @ wanted / np.linalg.norm(gradient) / np.linalg.norm(wanted)
    return float(cosine), float((old @ weight) ** 2 / (old @ weight**2))


COLOURS = (ORANGE, PURPLE, BLUE, GREEN, "#b59f00", GREY)
OBJECTIVE_COLOURS = {"linear": BLUE, "log": ORANGE, "sqrt": PURPLE, "arcsine": GREEN}
PAIR = (GREEN, ORANGE)
VISITS = ((4, 13, 29), (3, 9, 16, 24, 33))
"""The steps at which each of two prompts is drawn."""
PICTURES: dict[str, tuple[Callable[[Axes, Axes], None], str]] = {
    "signal_collapse": (signal_collapse, "Groups that teach nothing, by pass rate and over a run"),
    "rounds_and_streaming": (rounds_and_streaming, "Slots of an engine, in rounds and streamed"),
    "belief_and_worth": (belief_and_worth, "Beliefs over a run, and what a draw is worth"),
    "objective_weights": (what_an_objective_weighs, "What each objective weighs, by pass rate"),
    "staleness": (what_staleness_does, "What responses of old weights do to a gradient"),
}
"""Each picture: what draws it, and what it shows, for those who cannot see it."""


def picture(name: str) -> str:
    """Return a picture as SVG; the same bytes each time."""
    draw, what = PICTURES[name]
    stacked = name == "rounds_and_streaming"
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 4.6 if stacked else 3.3), layout="constrained")
        FigureCanvasSVG(figure)
        shape = (2, 1) if stacked else (1, 2)
        panels: Sequence[Axes] = list(figure.subplots(*shape, sharex=stacked).flat)
        draw(*panels)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Title": what})
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images"
    for name in PICTURES:
        (folder / f"{name}.svg").write_text(picture(name), encoding="utf-8")
