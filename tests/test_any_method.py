"""No settings of methods, prices or recorded rewards end a plan or a replay in a traceback."""

import json
import typing

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from row_files import write_rows

from rollwise.cli import main
from rollwise.config import TrainConfig
from rollwise.config.reading import sections_of
from rollwise.config.sections import settings_of
from rollwise.methods import METHODS as METHOD_NAMES

SECTIONS = ("prompts", "exit", "schedule", "group", "advantage", "belief", "step")
WHOLE = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 16, 33, 1000, 2**20])
REAL = st.sampled_from([0.0, 1e-300, 1e-9, 0.1, 0.25, 0.5, 0.9, 1.0, 1.5, 4.0, 1e3, 1e9, 1e300])
WORDS = st.sampled_from(["", "x", "all", "positives"])


def values_of(annotation):
    """Return values that a setting may well have, and some that it may not."""
    if typing.get_origin(annotation) is typing.Literal:
        return st.sampled_from(typing.get_args(annotation))
    named = str(annotation)
    if "bool" in named:
        return st.booleans()
    if "float" in named:
        return REAL
    return WHOLE if "int" in named else WORDS | WHOLE


@st.composite
def sections(draw, name):
    kind = draw(st.sampled_from(list(sections_of(settings_of(TrainConfig)[name]))))
    fields = settings_of(kind)
    tag = getattr(kind, "tag", None)
    keys = [key for key in fields if key != tag]
    chosen = draw(st.lists(st.sampled_from(keys), max_size=3)) if keys else []
    found = {key: draw(values_of(fields[key].hint)) for key in chosen}
    if tag in fields:
        found[tag] = fields[tag].default
    return found


METHODS = st.fixed_dictionaries(
    {"method": st.sampled_from(sorted(METHOD_NAMES))},
    optional={name: sections(name) for name in SECTIONS},
)
COMPARED = st.lists(METHODS, min_size=1, max_size=2)
PRICES = st.fixed_dictionaries(
    {"median": st.sampled_from([1, 10, 1e-9, 1e300])},
    optional={
        "sigma": st.sampled_from([0, 0.1, 10]),
        "longest": st.sampled_from([1, 100]),
        "incorrect_factor": REAL,
        "slots": WHOLE,
        "seconds_per_token": REAL,
    },
)
RATES = st.fixed_dictionaries(
    {"alpha": REAL, "beta": REAL, "prompts": WHOLE.filter(lambda n: n < 40)}
)
REWARDS = st.lists(
    st.lists(st.sampled_from([0, 1, 0.5, -1, 1e9, 1e300]), min_size=1, max_size=6),
    min_size=1,
    max_size=8,
)

fuzzed = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def outcome(words, methods, further):
    """Run a command with methods as options; it is done, or says what is wrong."""
    base = {"prompts": {"batch_size": 2}, "engine": {"max_new_tokens": 8}}
    given = {"base": base, "methods": {f"m{i}": m for i, m in enumerate(methods)}} | further
    for key, value in given.items():
        words = [*words, f"--{key}", value if isinstance(value, str) else json.dumps(value)]
    return main(words)


@fuzzed
@example(methods=[{}], prices={"median": 1}, rates={"alpha": 1.5, "beta": 1e300, "prompts": 1})
@given(methods=COMPARED, prices=PRICES, rates=RATES)
def test_any_plan(capsys, methods, prices, rates):
    further = {"steps": 2, "warmup": 1, "prices": prices, "pass_rates": rates}
    assert outcome(["plan"], methods, further) in (0, 2), capsys.readouterr()
    capsys.readouterr()


@fuzzed
@example(methods=[{"advantage": {"objective": "linear"}}], rewards=[[1e300, 1, 0, 1, 0, 1]] * 2)
@given(methods=COMPARED, rewards=REWARDS)
def test_any_replay(tmp_path_factory, capsys, methods, rewards):
    folder = tmp_path_factory.mktemp("replay")
    rows = [{"key": str(i), "reward": r} for i, each in enumerate(rewards) for r in each]
    file = write_rows(folder / "rewards.jsonl", rows)
    further = {"steps": 2, "seeds": 2, "rewards": str(file)}
    words = ["compare", "--output", str(folder / "out")]
    assert outcome(words, methods, further) in (0, 2), capsys.readouterr()
    capsys.readouterr()
