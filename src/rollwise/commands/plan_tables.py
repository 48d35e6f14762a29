"""The tables of a plan: for a terminal of 80 columns, and in Markdown."""

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from rollwise.commands.method_tables import (
    Cells,
    markdown_table,
    number,
    terminal_table,
    zero_variance,
)
from rollwise.evaluation.cluster import OnNodes
from rollwise.evaluation.planning import Mean, Plan, best

Plans = Mapping[str, Plan]

COST = {
    "prompts": "prompts",
    "draws": "draws",
    "tokens": "tokens",
    "seconds": "seconds",
    "zero_variance": "zero variance",
    "trained": "trained on",
}
"""Figure -> its column; zero-variance groups at the first draws, and after all."""

SIGNAL = {
    "signal": "a step",
    "signal_per_1000_tokens": "per 1,000 tokens",
    "signal_per_second": "per second",
}


def plan_tables(plans: Plans, on_nodes: Mapping[str, Sequence[OnNodes]]) -> Iterator[Table]:
    """Yield the table of costs, that of the signal, and that of nodes if there are any."""
    for table in (*_tables(plans), *nodes_table(on_nodes)):
        yield terminal_table(*table)


def markdown(
    plans: Plans, on_nodes: Mapping[str, Sequence[OnNodes]], sentences: Sequence[str]
) -> str:
    """Write the same tables in Markdown, and what is said of them."""
    tables = [markdown_table(*table) for table in (*_tables(plans), *nodes_table(on_nodes))]
    return "\n\n".join([*tables, *sentences]) + "\n"


def in_words(plans: Plans) -> Iterator[str]:
    """Say which method has most signal per token and per second, and why; or that none has."""
    if len(plans) < 2:
        return
    for price, words in (
        ("signal_per_1000_tokens", "per token"),
        ("signal_per_second", "per second"),
    ):
        first, second, is_clear = best(plans, price)
        values = plans[first][price].value, plans[second][price].value
        if not values[0] > 0:
            yield f"No method has any signal {words}."
        elif not is_clear:
            yield (
                f"Most signal {words}: no winner; {first} and {second} differ by no more than the "
                "simulation's own error (more steps make it smaller)."
            )
        else:
            more = f"{values[0] / values[1]:.2f} times" if values[1] > 0 else "all there is, to"
            reason = _reason(plans[first], plans[second], second, price)
            yield f"Most signal {words}: {first}, {more} that of {second}: {reason}."


def _reason(plan: Plan, other: Plan, name: str, price: str) -> str:
    """Split a signal per token into responses and what each is worth; per second, by speed too."""
    ways = {
        "it trains on {} responses per 1,000 tokens": [_trained_per_1000(p) for p in (plan, other)],
        "each is worth {}": [_worth(p) for p in (plan, other)],
    }
    if price == "signal_per_second":
        speeds = [p["tokens"].value / p["seconds"].value for p in (plan, other)]
        ways["{} tokens are drawn a second"] = speeds
    parts = [
        f"{text.format(number(mine))} ({name}: {number(theirs)})"
        for text, (mine, theirs) in ways.items()
    ]
    return ", ".join(parts)


def _trained_per_1000(plan: Plan) -> float:
    return 1000 * plan["trained"].value / plan["tokens"].value


def _worth(plan: Plan) -> float:
    trained = plan["trained"].value
    return plan["signal"].value / trained if trained else 0.0


def _tables(plans: Plans) -> Iterator[tuple[str, list[str], Cells]]:
    rows = [[name, *(_shown(plan, figure) for figure in COST)] for name, plan in plans.items()]
    yield "What a step costs", ["method", *COST.values()], rows
    rows = [[name, *(_with_error(plan[f]) for f in SIGNAL)] for name, plan in plans.items()]
    yield (
        "Signal, ± standard errors over steps",
        ["method", *SIGNAL.values()],
        rows,
    )


def nodes_table(
    on_nodes: Mapping[str, Sequence[OnNodes]],
) -> Iterator[tuple[str, list[str], Cells]]:
    """Yield title, header and rows of the table of nodes; nothing without any."""
    rows = [
        [
            name,
            str(each.nodes),
            number(each.seconds),
            number(each.driver_seconds),
            number(each.gigabytes),
        ]
        for name, found in on_nodes.items()
        for each in found
    ]
    if rows:
        header = ["method", "nodes", "sampling, s", "driver, s", "network, GB a node"]
        yield "A step by nodes", header, rows


def _shown(plan: Plan, figure: str) -> str:
    if figure == "zero_variance":
        return zero_variance(plan)
    return number(plan[figure].value)


def _with_error(mean: Mean) -> str:
    return f"{number(mean.value)} ±{mean.error:.2g}"
