"""What rounds cost: streaming, giving up, draw order, and what a session costs itself.

Prompts are sampled until `Balanced(2, 2)` is met, by the simulated engine, in virtual time: 512
prompts, logits of pass rates normal (σ 1.9; mean pass rates about 0.26, 0.50 and 0.77: early,
middle and late in training), log-normal lengths (median 500 tokens, σ 0.7, cut at 2,048), prefill
as long as 20 tokens, and 1,024 slots ("spare") or 256 ("saturated"). All schedules meet the same
responses. Tokens are those of all draws: surplus ones, and cancelled ones as far as they came,
included. Values are means over the three shapes; intervals are 95 %, by Student's t over seeds.

Parts: (a) schedules, (b) how far draws run ahead, (c) giving up, (d) draw order against completion
order, (e) the processor time of a session's own calls: median, least and most over repeats. The
last line's figures of giving up are those from a flat belief, with 256 slots.

    OMP_NUM_THREADS=1 python benchmarks/schedules.py [--quick] [--parts abcde] [--figure FILE.svg]
"""

import argparse
import io
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from scipy import special, stats

import rollwise as rw
from rollwise.engines import Completion
from rollwise.engines.simulated import CORRECT, Lengths, SimulatedEngine, simulate

STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "rollwise",
}

Estimate = dict[str, float]

PROMPTS = 512
SHAPES = {"early": -1.75, "middle": 0.0, "late": 2.0}
"""Mean of the logits of the pass rates."""
SPREAD = 1.9
LENGTHS = Lengths(median=500, sigma=0.7, longest=2048)
PREFILL = 20.0
SLOTS = {"spare": 1024, "saturated": 256}
RULE, STREAMED = rw.Balanced(2, 2), rw.Streamed(32)
SPECULATIONS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
THRESHOLDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
RECOMMENDED = 0.1
"""The threshold of giving up that the last line's figures are of."""
VISIT_DRAWS, DRIFT = 8, (0.2, 0.3)
"""Draws of an earlier visit; mean and standard deviation of how a logit has moved since."""
BELIEFS = {"flat": "nothing believed beforehand", "visit": "believed since a visit of 8 draws"}


@dataclass(frozen=True)
class Setting:
    """How a batch is sampled.

    Attributes:
        slots: "spare" or "saturated".
        belief: "flat", or "visit": what an earlier visit leaves believed of each prompt.
        lengths: How long responses are.
        by_completion: Whether responses enter pools as they finish, not in draw order.
    """

    slots: str
    rule: rw.ExitRule = RULE
    schedule: rw.Schedule = STREAMED
    below: float = 0.0
    belief: str = "flat"
    lengths: Lengths = LENGTHS
    by_completion: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a batch; arrays are by prompt, shape (P,).

    Attributes:
        time: Virtual seconds until the last prompt ended; a token takes one.
        tokens: Of all draws.
        busy: Share of the slots' time that was spent drawing.
        length, reward: Means over each pool.
        group_length: Mean over the group of 4 that would be trained on; NaN where it is uniform.
    """

    time: float
    tokens: int
    busy: float
    mixed: np.ndarray
    satisfied: np.ndarray
    futile: np.ndarray
    length: np.ndarray
    reward: np.ndarray
    group_length: np.ndarray


def in_rounds(slots: str) -> Setting:
    """Reinforce-Ada's rounds of 8, at most 4."""
    return Setting(slots, schedule=rw.Rounds(8, 4))


def giving_up(below: float, belief: str = "flat", slots: str = "saturated") -> Setting:
    """Streaming that gives a prompt up."""
    return Setting(slots, below=below, belief=belief)


def grpo(slots: str) -> Setting:
    """Four draws of each prompt, whatever they are."""
    return Setting(slots, rule=rw.FixedCount(4), schedule=rw.Rounds(4, 1))


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 seeds, fewer settings")
    parser.add_argument("--parts", default="abcde", help="which parts, such as 'ac'")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--figure", type=Path, help="an SVG file for the curve of giving up")
    arguments = parser.parse_args()
    seeds = range(2 if arguments.quick else arguments.seeds)
    console = Console(width=132)
    figures: dict[str, Estimate] = {}
    for part in arguments.parts:
        figures |= PARTS[part](console, seeds, arguments.quick)
    if arguments.figure:
        arguments.figure.write_text(curve_of_giving_up(seeds))
    print(json.dumps(figures))


# ---- Sampling a batch ----


@cache
def sample(setting: Setting, shape: str, seed: int) -> Outcome:
    """Sample a batch once."""
    rates, believed = problem(shape, seed)
    priors = believed if setting.belief == "visit" else None
    session = rw.RolloutSession(
        rates,
        setting.rule,
        setting.schedule,
        seed=seed,
        priors=priors,
        give_up_below=setting.below,
    )
    engine = SimulatedEngine(rates, setting.lengths, SLOTS[setting.slots], prefill=PREFILL)
    (simulate_by_completion if setting.by_completion else simulate)(session, engine)
    pools = list(session.pools.values())
    return Outcome(
        time=engine.now,
        tokens=engine.tokens,
        busy=engine.busy / (engine.slots * engine.now),
        mixed=np.array([not pool.zero_variance for pool in pools]),
        satisfied=np.array([pool.exit_reason == "satisfied" for pool in pools]),
        futile=np.array([pool.exit_reason == "futile" for pool in pools]),
        length=np.array([_length(pool.responses) for pool in pools]),
        reward=np.array([pool.positives / len(pool) for pool in pools]),
        group_length=np.array([_group_length(pool) for pool in pools]),
    )


def problem(shape: str, seed: int) -> tuple[dict[int, float], np.ndarray]:
    """Make pass rates, and what an earlier visit leaves believed of them: Beta(1 + n₊, 1 + n₋)."""
    rng = np.random.default_rng([seed, list(SHAPES).index(shape)])
    logits = rng.normal(SHAPES[shape], SPREAD, PROMPTS)
    before = special.expit(logits - rng.normal(*DRIFT, PROMPTS))
    correct = rng.binomial(VISIT_DRAWS, before)
    believed = 1.0 + np.stack([correct, VISIT_DRAWS - correct], axis=1)
    return dict(enumerate(special.expit(logits).tolist())), believed


def _length(responses: Sequence[Completion]) -> float:
    return sum(len(response.tokens) for response in responses) / len(responses)


def _group_length(pool: rw.Pool) -> float:
    group = rw.select_group(pool, 4)
    return np.nan if group.zero_variance else _length([pool.responses[i] for i in group.indices])


def simulate_by_completion(session: rw.RolloutSession, engine: SimulatedEngine) -> None:
    """Sample to the end, taking whatever is done first: the way that rollwise avoids.

    A response that finishes takes the number of its prompt's first draw in flight, and that draw
    takes its number.
    """
    drawn_as: dict[rw.Draw, rw.Draw] = {}  # in flight: the session's name -> the engine's
    known_as: dict[rw.Draw, rw.Draw] = {}  # the engine's name -> the session's
    while not session.done:
        draws = session.next_draws(engine.free_slots)
        drawn_as |= zip(draws, draws, strict=True)
        known_as |= zip(draws, draws, strict=True)
        engine.submit(draws)
        for completion in engine.wait():
            if completion.draw not in known_as:
                continue  # cancelled at this very instant
            own = known_as.pop(completion.draw)
            first = min((d for d in drawn_as if d.key == own.key), key=lambda d: d.index)
            if first != own:
                drawn_as[own] = drawn_as[first]
                known_as[drawn_as[own]] = own
            del drawn_as[first]
            reward = float(completion.text == CORRECT)
            cancelled = [drawn_as.pop(d) for d in session.record(first, reward, completion)]
            for draw in cancelled:
                del known_as[draw]
            engine.cancel(cancelled)


# ---- Means, intervals, tables ----


def over_seeds(values: Iterable[float]) -> Estimate:
    """Mean with its 95 % interval, by Student's t."""
    of_seeds = np.array(list(values), dtype=float)
    mean, half = float(of_seeds.mean()), 0.0
    if len(of_seeds) > 1:
        half = float(stats.t.ppf(0.975, len(of_seeds) - 1) * stats.sem(of_seeds))
    return {"value": mean, "low": mean - half, "high": mean + half}


def estimate(
    of: Callable[..., float], settings: Sequence[Setting], seeds: Iterable[int], *shapes: str
) -> Estimate:
    """Estimate a figure of the outcomes of `settings`: the mean over `shapes`, by default all."""
    return over_seeds(
        np.mean([of(*(sample(s, shape, seed) for s in settings)) for shape in shapes or SHAPES])
        for seed in seeds
    )


def ratio(name: str) -> Callable[[Outcome, Outcome], float]:
    """Make the figure "one outcome's `name` divided by another's"."""
    return lambda one, other: getattr(one, name) / getattr(other, name)


def percent(name: str) -> Callable[[Outcome], float]:
    """Make the figure "an outcome's `name`, on average, in percent"."""
    return lambda one: 100 * float(np.mean(getattr(one, name)))


def shown(found: Estimate, digits: int = 2) -> str:
    """Write a value with its interval."""
    value, low, high = (f"{found[end]:,.{digits}f}" for end in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def show(console: Console, title: str, columns: str, rows: Iterable[Iterable[str]]) -> None:
    """Print a table; columns are parted by "|"."""
    table = Table(title=title)
    for place, column in enumerate(columns.split("|")):
        table.add_column(column.strip(), justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


# ---- (a) Schedules ----


def schedules(console: Console, seeds: Sequence[int], quick: bool) -> dict[str, Estimate]:
    """Compare rounds, streaming, streaming that gives up, and GRPO."""
    columns = " | time/rounds | tokens/rounds | time/GRPO | tokens/GRPO | busy % | mixed %"
    figures: dict[str, Estimate] = {}
    for slots, count in SLOTS.items():
        of_schedules = _rows_of_schedules(slots, seeds)
        show(console, f"(a) {count:,} slots, {slots}", columns, of_schedules)
        pair = Setting(slots), in_rounds(slots)
        figures[f"time_ratio_{slots}"] = estimate(ratio("time"), pair, seeds)
        figures[f"token_ratio_{slots}"] = estimate(ratio("tokens"), pair, seeds)
        # A streamed pool is the pool of rounds up to where the rule is met, so both end alike.
        for name in ("satisfied", "mixed"):
            alike = estimate(lambda *two, n=name: _differ(n, *two), pair, seeds)
            console.print(f"Prompts {name} in one and not in the other: {alike['value']:.0f}")
    return figures


def _rows_of_schedules(slots: str, seeds: Sequence[int]) -> Iterator[Iterable[str]]:
    arms = {
        "rounds": in_rounds(slots),
        "streamed": Setting(slots),
        "giving up": giving_up(RECOMMENDED, slots=slots),
        "GRPO": grpo(slots),
    }
    for shape in (*SHAPES, "mean"):
        shapes = () if shape == "mean" else (shape,)
        for name, arm in arms.items():
            costs = (
                shown(estimate(ratio(cost), (arm, arms[other]), seeds, *shapes))
                for other in ("rounds", "GRPO")
                for cost in ("time", "tokens")
            )
            shares = (estimate(percent(s), (arm,), seeds, *shapes) for s in ("busy", "mixed"))
            yield f"{shape}: {name}", *costs, *(f"{share['value']:.1f}" for share in shares)


def _differ(name: str, one: Outcome, other: Outcome) -> int:
    return int(np.count_nonzero(getattr(one, name) != getattr(other, name)))


# ---- (b) How far draws run ahead ----


def speculation(console: Console, seeds: Sequence[int], quick: bool) -> dict[str, Estimate]:
    """Compare settings of `speculation`."""

    def row(least: float) -> Iterator[str]:
        yield f"{least:g}"
        for slots in SLOTS:
            pair = Setting(slots, schedule=rw.Streamed(32, least)), in_rounds(slots)
            for cost in ("time", "tokens"):
                yield shown(estimate(ratio(cost), pair, seeds), 3)

    columns = " | spare: time | spare: tokens | saturated: time | saturated: tokens"
    chosen = (0.1, 0.25, 1.0) if quick else SPECULATIONS
    show(console, "(b) speculation; relative to rounds", columns, map(row, chosen))
    return {}


# ---- (c) Giving up ----


def thresholds(console: Console, seeds: Sequence[int], quick: bool) -> dict[str, Estimate]:
    """Show what giving up saves and what it loses, by threshold and by what was believed.

    The last column is what each pool lost since the threshold before would have cost.
    """
    columns = (
        "below | tokens/rounds | time/\nrounds | points lost | given\nup % | still\nmixed % "
        "| wrongly\n% | tokens per\nmixed pool | tokens per pool lost"
    )
    chosen = (0.0, RECOMMENDED) if quick else THRESHOLDS
    for belief, words in BELIEFS.items():
        title = f"(c) giving up, {words}; saturated"
        show(console, title, columns, _rows_of_thresholds(chosen, belief, seeds))
    found = estimates_of_giving_up(RECOMMENDED, "flat", seeds)
    return {"token_ratio_giving_up": found["tokens"], "mixed_points_lost": found["lost"]}


def _rows_of_thresholds(
    chosen: Sequence[float], belief: str, seeds: Sequence[int]
) -> Iterator[Iterable[str]]:
    for before, below in zip((None, *chosen), chosen, strict=False):
        found = estimates_of_giving_up(below, belief, seeds)
        saved = (_per_pool_lost(before, below, belief, seed) for seed in seeds)
        yield (
            f"{below:g}",
            shown(found["tokens"]),
            f"{found['time']['value']:.2f}",
            shown(found["lost"], 1),
            *(f"{found[name]['value']:.0f}" for name in ("futile", "mixed", "wrongly")),
            f"{found['price']['value']:,.0f}",
            "" if before is None else shown(over_seeds(saved), 0),
        )


def estimates_of_giving_up(
    below: float, belief: str, seeds: Sequence[int], *shapes: str
) -> dict[str, Estimate]:
    """Measure one threshold, with saturated slots.

    `lost`: pools that would have been mixed and are not, in percentage points of the prompts.
    `mixed`, `wrongly`: the percentages of those given up whose pool is mixed all the same, and
    whose rule would have been met. `price`: tokens per mixed pool.
    """
    settings = giving_up(below, belief), Setting("saturated"), in_rounds("saturated")
    figures: dict[str, Callable[[Outcome, Outcome, Outcome], float]] = {
        "tokens": lambda given, full, rounds: given.tokens / rounds.tokens,
        "time": lambda given, full, rounds: given.time / rounds.time,
        "lost": lambda given, full, rounds: 100 * (full.mixed & ~given.mixed).mean(),
        "futile": lambda given, full, rounds: 100 * given.futile.mean(),
        "mixed": lambda given, full, rounds: 100 * _share(given.mixed, given.futile),
        "wrongly": lambda given, full, rounds: 100 * _share(full.satisfied, given.futile),
        "price": lambda given, full, rounds: given.tokens / given.mixed.sum(),
    }
    return {name: estimate(of, settings, seeds, *shapes) for name, of in figures.items()}


def _share(of: np.ndarray, among: np.ndarray) -> float:
    return float(of[among].mean()) if among.any() else 0.0


def _per_pool_lost(before: float, below: float, belief: str, seed: int) -> float:
    """Tokens saved for each mixed pool lost, between thresholds, all shapes together."""
    saved = lost = 0
    for shape in SHAPES:
        less, more = (sample(giving_up(b, belief), shape, seed) for b in (before, below))
        saved += less.tokens - more.tokens
        lost += int(less.mixed.sum() - more.mixed.sum())
    return saved / lost if lost else float("nan")


def curve_of_giving_up(seeds: Sequence[int]) -> str:
    """Plot tokens against mixed pools lost, a panel a shape, a line a belief; returns an SVG."""
    file = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 3.0), layout="constrained")
        panels = figure.subplots(1, len(SHAPES), sharex=True, sharey=True)
        for axes, shape in zip(panels, SHAPES, strict=True):
            for belief, colour in zip(BELIEFS, ("#e76f51", "#2a9d8f"), strict=True):
                found = [estimates_of_giving_up(b, belief, seeds, shape) for b in THRESHOLDS]
                points = [(f["lost"]["value"], f["tokens"]["value"]) for f in found]
                axes.plot(*zip(*points, strict=True), ".-", color=colour, label=BELIEFS[belief])
                # Thresholds stand above the upper line and below the lower one.
                offset = (2, 5) if belief == "flat" else (-6, -12)
                for below, point in zip(THRESHOLDS, points, strict=True):
                    if below >= RECOMMENDED:
                        placed = {"xytext": offset, "textcoords": "offset points"}
                        axes.annotate(f"{below:g}", point, color=colour, fontsize=8, **placed)
            axes.set_title(shape, loc="left")
            axes.set_xlabel("mixed pools lost, % of prompts")
        panels[0].set(ylabel="tokens / tokens of rounds", ylim=(0, 1))
        panels[0].legend(loc="lower left")
        title = "Giving up: tokens against mixed pools lost, by threshold"
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None, "Title": title})
    text = file.getvalue()
    return text[text.index("<svg") :]


# ---- (d) Draw order ----


def orders(console: Console, seeds: Sequence[int], quick: bool) -> dict[str, Estimate]:
    """Compare completion order with draw order, incorrect responses being half as long again."""
    lengths = replace(LENGTHS, incorrect_factor=1.5)
    figures: dict[str, Callable[[Outcome, Outcome], float]] = {
        "time, draw order / completion order": ratio("time"),
        "tokens, draw order / completion order": ratio("tokens"),
        "bias of completion order: length in pools, %": _bias("length"),
        "bias of completion order: length in groups, %": _bias("group_length"),
        "bias of completion order: reward in pools, points": lambda draw, done: (
            100 * float(done.reward.mean() - draw.reward.mean())
        ),
    }

    def row(name: str) -> Iterator[str]:
        yield name
        for slots in SLOTS:
            draw_order = Setting(slots, lengths=lengths)
            pair = draw_order, replace(draw_order, by_completion=True)
            yield shown(estimate(figures[name], pair, seeds))

    title = "(d) what draw order costs, and what completion order does"
    show(console, title, " | spare | saturated", map(row, figures))
    return {}


def _bias(name: str) -> Callable[[Outcome, Outcome], float]:
    def percent_more(draw: Outcome, done: Outcome) -> float:
        return 100 * float(np.nanmean(getattr(done, name)) / np.nanmean(getattr(draw, name)) - 1)

    return percent_more


# ---- (e) The session's own cost ----


def own_cost(console: Console, seeds: Sequence[int], quick: bool) -> dict[str, Estimate]:
    """Time a session's calls, by the number of prompts; draws complete in random order."""
    figures = {}
    for prompts in (512, 1024, 2048, 4096):
        seconds = [session_seconds(prompts, seed) for seed in range(2 if quick else 7)]
        middle = float(np.median(seconds))
        figures[prompts] = {"value": middle, "low": min(seconds), "high": max(seconds)}
    show(
        console,
        "(e) a session's own processor time; 32 draws of each prompt, 1,024 in flight",
        "prompts | seconds | µs a draw",
        ((f"{n:,}", shown(f, 3), f"{f['value'] / (32 * n) * 1e6:.1f}") for n, f in figures.items()),
    )
    return {"session_s": figures[4096]}


def session_seconds(prompts: int, seed: int, slots: int = 1024, portion: int = 64) -> float:
    """Processor seconds of all calls of `next_draws` and `record` until all draws are in.

    Draws come in by `portion`s, chosen before the clock starts, and one is handed out for each.
    Reading the clock takes up to a tenth of what a draw does, so it is read once a portion.
    """
    rng = random.Random(seed)
    session = rw.RolloutSession(range(prompts), rw.FixedCount(32), rw.Streamed(32), seed=seed)
    began = time.process_time()
    flying = session.next_draws(slots)
    seconds = time.process_time() - began
    while not session.done:
        rng.shuffle(flying)
        flying, done = flying[portion:], flying[:portion]
        began = time.process_time()
        for draw in done:
            session.record(draw, 1.0)
            flying += session.next_draws(1)
        seconds += time.process_time() - began
    return seconds


PARTS = {"a": schedules, "b": speculation, "c": thresholds, "d": orders, "e": own_cost}


if __name__ == "__main__":
    main()
