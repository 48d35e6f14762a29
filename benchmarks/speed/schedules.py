"""What rounds cost: streaming, giving up, draw order.

Prompts are sampled until `Balanced(2, 2)` is met, by the simulated engine, in virtual time: 512
prompts, logits of pass rates normal (σ 1.9; mean pass rates about 0.26, 0.50 and 0.77: early,
middle and late in training), log-normal lengths (median 500 tokens, σ 0.7, cut at 2,048), prefill
as long as 20 tokens, and 1,024 slots ("spare") or 256 ("saturated"). All schedules meet the same
responses. Tokens are those of all draws: surplus ones, and cancelled ones as far as they came,
included. Values are means over the three shapes; intervals are 95 %, by Student's t over seeds.

Parts: (a) schedules, (b) how far draws run ahead, (c) giving up, (d) draw order against completion
order. The last line's figures of giving up are those from a flat belief, with 256 slots.

    OMP_NUM_THREADS=1 python benchmarks/speed/schedules.py [--quick] [--parts abcd] [--figure FILE]
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy import special

import rollwise as rw
from rollwise import loops
from rollwise.simulate.engine import Lengths, SimulatedEngine, simulate
from rollwise.step import Response

sys.path.append(str(Path(__file__).parents[1]))

from figures import COLORS, svg
from measuring import Figure, arguments, over_seeds, print_line, print_table, shown

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
    parser = arguments(__doc__, "2 seeds, fewer settings", parts="".join(PARTS), seeds=5)
    parser.add_argument("--figure", type=Path, help="an SVG file for the curve of giving up")
    given = parser.parse_args()
    seeds = range(2 if given.quick else given.seeds)
    figures: dict[str, Figure] = {}
    for part in given.parts:
        figures |= PARTS[part](seeds, given.quick)
    if given.figure:
        draw_giving_up(given.figure, seeds)
    print_line(figures)


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
    if setting.by_completion:
        loops.run(draw_by_completion(session, engine))
    else:
        simulate(session, engine)
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


def _length(responses: Sequence[Response]) -> float:
    return sum(len(response.tokens) for response in responses) / len(responses)


def _group_length(pool: rw.Pool) -> float:
    group = rw.select_group(pool, 4)
    return np.nan if group.zero_variance else _length([pool.responses[i] for i in group.indices])


async def draw_by_completion(session: rw.RolloutSession, engine: SimulatedEngine) -> None:
    """Sample to the end, taking whatever is done first: the way that rollwise avoids.

    A response that finishes takes the number of its prompt's first draw in flight, and that draw
    takes its number.
    """
    tasks: dict[rw.Draw, asyncio.Task[Response]] = {}
    cancelled: list[asyncio.Task[Response]] = []
    while not session.done:
        free = engine.slots - len(tasks)
        for draw in session.next_draws(free) if free else ():
            tasks[draw] = asyncio.create_task(engine.complete(draw, ()))
        await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        for task in [task for task in tasks.values() if task.done()]:
            own = next((draw for draw, its in tasks.items() if its is task), None)
            if own is None:
                continue  # cancelled at this very instant
            first = min((draw for draw in tasks if draw.key == own.key), key=lambda d: d.index)
            tasks[own] = tasks[first]
            del tasks[first]
            response = task.result()
            for draw in session.record(first, await engine.reward(own, response), response):
                cancelled.append(tasks.pop(draw))
                cancelled[-1].cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


# ---- Means, intervals, tables ----


def estimate(
    of: Callable[..., float], settings: Sequence[Setting], seeds: Iterable[int], *shapes: str
) -> Figure:
    """Figure a figure of the outcomes of `settings`: the mean over `shapes`, by default all."""
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


def show(title: str, columns: str, rows: Iterable[Iterable[str]]) -> None:
    """Print a table; columns are parted by "|"."""
    print_table(title, [column.strip() for column in columns.split("|")], rows)


# ---- (a) Schedules ----


def schedules(seeds: Sequence[int], quick: bool) -> dict[str, Figure]:
    """Compare rounds, streaming, streaming that gives up, and GRPO."""
    columns = " | time/rounds | tokens/rounds | time/GRPO | tokens/GRPO | busy % | mixed %"
    figures: dict[str, Figure] = {}
    for slots, count in SLOTS.items():
        of_schedules = _rows_of_schedules(slots, seeds)
        show(f"(a) {count:,} slots, {slots}", columns, of_schedules)
        pair = Setting(slots), in_rounds(slots)
        figures[f"time_ratio_{slots}"] = estimate(ratio("time"), pair, seeds)
        figures[f"token_ratio_{slots}"] = estimate(ratio("tokens"), pair, seeds)
        # A streamed pool is the pool of rounds up to where the rule is met, so both end alike.
        for name in ("satisfied", "mixed"):
            alike = estimate(lambda *two, n=name: _differ(n, *two), pair, seeds)
            print(f"Prompts {name} in one and not in the other: {alike['value']:.0f}")
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
                shown(estimate(ratio(cost), (arm, arms[other]), seeds, *shapes), ".2f")
                for other in ("rounds", "GRPO")
                for cost in ("time", "tokens")
            )
            shares = (estimate(percent(s), (arm,), seeds, *shapes) for s in ("busy", "mixed"))
            yield f"{shape}: {name}", *costs, *(f"{share['value']:.1f}" for share in shares)


def _differ(name: str, one: Outcome, other: Outcome) -> int:
    return int(np.count_nonzero(getattr(one, name) != getattr(other, name)))


# ---- (b) How far draws run ahead ----


def speculation(seeds: Sequence[int], quick: bool) -> dict[str, Figure]:
    """Compare settings of `speculation`."""

    def row(least: float) -> Iterator[str]:
        yield f"{least:g}"
        for slots in SLOTS:
            pair = Setting(slots, schedule=rw.Streamed(32, least)), in_rounds(slots)
            for cost in ("time", "tokens"):
                yield shown(estimate(ratio(cost), pair, seeds), ".3f")

    columns = " | spare: time | spare: tokens | saturated: time | saturated: tokens"
    chosen = (0.1, 0.25, 1.0) if quick else SPECULATIONS
    show("(b) speculation; relative to rounds", columns, map(row, chosen))
    return {}


# ---- (c) Giving up ----


def thresholds(seeds: Sequence[int], quick: bool) -> dict[str, Figure]:
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
        show(title, columns, _rows_of_thresholds(chosen, belief, seeds))
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
            shown(found["tokens"], ".2f"),
            f"{found['time']['value']:.2f}",
            shown(found["lost"], ".1f"),
            *(f"{found[name]['value']:.0f}" for name in ("futile", "mixed", "wrongly")),
            f"{found['price']['value']:,.0f}",
            "" if before is None else shown(over_seeds(saved), ",.0f"),
        )


def estimates_of_giving_up(
    below: float, belief: str, seeds: Sequence[int], *shapes: str
) -> dict[str, Figure]:
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


def draw_giving_up(path: Path, seeds: Sequence[int]) -> None:
    """Plot tokens against mixed pools lost, a panel a shape, a line a belief."""
    title = "Giving up: tokens against mixed pools lost, by threshold"
    with svg(path, title, (9.6, 3.0)) as figure:
        panels = figure.subplots(1, len(SHAPES), sharex=True, sharey=True)
        for axes, shape in zip(panels, SHAPES, strict=True):
            for belief, colour in zip(BELIEFS, COLORS[1:], strict=False):
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


# ---- (d) Draw order ----


def orders(seeds: Sequence[int], quick: bool) -> dict[str, Figure]:
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
            yield shown(estimate(figures[name], pair, seeds), ".2f")

    title = "(d) what draw order costs, and what completion order does"
    show(title, " | spare | saturated", map(row, figures))
    return {}


def _bias(name: str) -> Callable[[Outcome, Outcome], float]:
    def percent_more(draw: Outcome, done: Outcome) -> float:
        return 100 * float(np.nanmean(getattr(done, name)) / np.nanmean(getattr(draw, name)) - 1)

    return percent_more


PARTS = {"a": schedules, "b": speculation, "c": thresholds, "d": orders}


if __name__ == "__main__":
    main()
