"""What plans and replays say: the same tables for both, and a sentence on each method."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rollwise.simulate.recorded import RecordedPrompt
from rollwise.simulate.replaying import ReplayedMethod
from rollwise.simulate.steps import Figures, Mean
from rollwise.statistics import Estimate

Table = tuple[str, list[str], list[list[str]]]
"""Title, header and rows. An interval is on a line of its own, below its value."""

Plans = Mapping[str, Figures]
Replayed = Mapping[str, ReplayedMethod]

COSTS = ("prompts", "draws", "tokens", "seconds", "zero variance", "trained on", "ran out")
"""Columns of what a step costs; zero-variance groups at the first draws, and after all."""


def plan_tables(plans: Plans) -> list[Table]:
    """Return the tables of a plan: what a step costs, and its signal."""
    signal = ("signal", "signal_per_1000_tokens", "signal_per_second")
    rows = [[name, *(_cell(plan[figure]) for figure in signal)] for name, plan in plans.items()]
    header = ["method", "a step", "per 1,000 tokens", "per second"]
    return [_cost_table(plans, COSTS[:-1]), ("Signal, ± standard errors over steps", header, rows)]


def replay_tables(methods: Replayed, baseline: str, has_lengths: bool) -> list[Table]:
    """Return the tables of replays: what a step costs, and its signal beside the baseline's."""
    hidden = {"seconds"} if has_lengths else {"seconds", "tokens"}
    means = {name: method.means for name, method in methods.items()}
    header = ["method", "a step", f"per {_price(has_lengths)}", "difference", "verdict"]
    rows = []
    for name, method in methods.items():
        signal = [_cell(method.means[f]) for f in ("signal", "signal_per_1000_tokens")]
        difference = ""
        if method.differences is not None:
            difference = _cell(method.differences["signal_per_1000_tokens"], "+")
        rows.append([name, *signal, difference, method.verdict])
    return [
        _cost_table(means, [column for column in COSTS if column not in hidden]),
        (f"Signal, and its difference from {baseline}", header, rows),
    ]


def _cost_table(
    methods: Mapping[str, Mapping[str, Mean | Estimate]], columns: Sequence[str]
) -> Table:
    rows = []
    for name, figures in methods.items():
        values = {figure: mean.value for figure, mean in figures.items()}
        rows.append([name, *(_cost(values, column) for column in columns)])
    return "What a step costs", ["method", *columns], rows


def _cost(values: Mapping[str, float], column: str) -> str:
    if column == "ran out":
        return f"{100 * values['ran_out']:.0f} %"
    if column != "zero variance":
        return number(values[column.removesuffix(" on")])
    if "zero_variance_first" not in values:  # of single responses
        return "–"
    first, after = (100 * values[f"zero_variance_{when}"] for when in ("first", "after"))
    return f"{first:.0f} → {after:.0f} %"


def number(value: float, sign: str = "") -> str:
    """Show three digits; whole numbers from 100 on."""
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.3g}"


def _cell(mean: Mean | Estimate, sign: str = "") -> str:
    """Show a mean with its standard error, or an estimate above its interval if that has width."""
    value = number(mean.value, sign)
    if isinstance(mean, Mean):
        return f"{value} ±{mean.error:.2g}"
    if mean.low == mean.high:
        return value
    return f"{value}\n[{number(mean.low, sign)}, {number(mean.high, sign)}]"


def replay_in_words(methods: Replayed, baseline: str, has_lengths: bool) -> Iterator[str]:
    """Return of each method whether it has more signal for its cost."""
    price = _price(has_lengths)
    for name, method in methods.items():
        if method.differences is None and name != baseline:
            yield f"{name}: one replay cannot show a difference from {baseline}."
        elif method.verdict == "not shown":
            yield f"{name}: no difference from {baseline} in signal for {price} is shown."
        elif method.verdict:
            base = methods[baseline].means["signal_per_1000_tokens"].value
            found = method.means["signal_per_1000_tokens"].value
            more = f"{found / base:.2f} times" if base > 0 else "not 0, as is"
            yield f"{name}: {more} the signal of {baseline} for {price}."


def recorded_in_words(prompts: Sequence[RecordedPrompt]) -> str:
    """Describe what was recorded, and what the figures of replays are means of."""
    counts = [len(prompt.recorded) for prompt in prompts]
    least, most = min(counts), max(counts)
    each = str(least) if least == most else f"{least} to {most}"
    mean = np.mean([prompt.recorded.rewards.mean() for prompt in prompts])
    return (
        f"{len(prompts):,} prompts of {each} recorded responses, mean reward {mean:.3f}; means "
        "over steps and orders of the responses. 95 % intervals are of other prompts like these: "
        "by bootstrap over prompts, each with its responses."
    )


def _price(has_lengths: bool) -> str:
    return "1,000 tokens" if has_lengths else "1,000 draws"
