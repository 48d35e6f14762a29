"""`rollwise plan`: what it writes and says, and what it refuses."""

import json
import re
import tomllib

import numpy as np
import pytest
from row_files import write_rows

from rollwise.config import PlanConfig, make_settings
from rollwise.simulate.engine import Lengths
from rollwise.simulate.pass_rates import spread_pass_rates
from rollwise.simulate.planning import Prices, simulate_steps

PLAN = """
steps = 4
warmup = 1
pass_rates = {alpha = 1, beta = 1, prompts = 16}
prices = {median = 20, sigma = 0}

[base]
prompts = {batch_size = 8}

[methods.GRPO]
method = "grpo"
exit = {samples = 2}

[methods."own | <b>rule"]
method = "reinforce_ada"
"""


def test_what_a_plan_writes_and_says(tmp_path, write, say):
    shown = say("plan", tmp_path / "out", write(PLAN))
    begun = [shown.index(f"{name}: simulating 5 steps") for name in ("GRPO", "own | <b>rule")]
    assert begun == sorted(begun) and begun[-1] < shown.index("16 prompts")
    assert "16 prompts, mean pass rate 0.500; means over 4 simulated steps" in shown
    plan = json.loads((tmp_path / "out/plan.json").read_text(encoding="utf-8"))
    assert list(plan) == ["GRPO", "own | <b>rule"]
    assert plan["GRPO"]["draws"] == {"value": 16.0, "error": 0.0}
    assert plan["GRPO"]["tokens"] == {"value": 320.0, "error": 0.0}
    assert plan["GRPO"]["seconds"]["value"] == pytest.approx(20 * 0.02)
    text = (tmp_path / "out/plan.md").read_text(encoding="utf-8")
    assert re.search(
        r"^\| GRPO \| 8 \| 16 \| 320 \| 0.4 \| \d+ → \d+ % \| \d+(\.\d+)? \|$", text, re.M
    )
    assert "own \\| <b>rule" in text
    line = "GRPO: grpo · 8 prompts by uniform · exit fixed_count (samples 2) · schedule rounds"
    assert line in shown and line in text
    assert "compare methods by training them" in shown
    first = (tmp_path / "out/plan.json").read_bytes()
    for options, is_same in (((), True), (("--seed", "1"), False)):
        say("plan", tmp_path / "out", write(PLAN), *options)
        assert ((tmp_path / "out/plan.json").read_bytes() == first) is is_same


def test_the_steps_of_the_warm_up_are_left_out(tmp_path, write, say):
    say("plan", tmp_path / "out", write(PLAN))
    plan = json.loads((tmp_path / "out/plan.json").read_text(encoding="utf-8"))
    method = make_settings(PlanConfig, tomllib.loads(PLAN)).method("own | <b>rule")
    prices = Prices(Lengths(20, 0, 48), method.engine.batch_size, 0.02)
    steps = simulate_steps(method, spread_pass_rates(1, 1, 16), prices, 5)
    draws = [step["draws"] for step in steps]
    assert np.mean(draws) != np.mean(draws[1:])
    assert plan["own | <b>rule"]["draws"]["value"] == pytest.approx(np.mean(draws[1:]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("alpha = 1, ", ""), "or both `alpha` and `beta` of `pass_rates`; got `beta`"),
        (("median = 20, ", ""), "give `median`, the median length of responses in tokens"),
        (("median = 20", "median = 60"), "`prices.median` is 60, but method `GRPO` cuts .* at 48"),
        (("batch_size = 8", "batch_size = 32"), "method `GRPO`: `prompts`: batch_size must be"),
        (("samples = 2", "samples = 0"), "`GRPO`: `exit.samples` must be at least 1; it is 0"),
        (("alpha = 1, beta = 1, prompts = 16", ""), "`pass_rates`; got none"),
        (("steps = 4", "step = 4"), "there is no setting `step`"),
        (("batch_size = 8", "batch_size = 8, visits = 1"), "are over after 2 of 5 steps"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(tmp_path, write, say, change, said):
    shown = say("plan", tmp_path / "out", write(PLAN.replace(*change)), code=2)
    assert re.search(said, shown)
    assert not (tmp_path / "out").exists()


REWARDS = PLAN.replace("pass_rates = {alpha = 1, beta = 1, prompts = 16}", "").replace(
    "prices = {median = 20, sigma = 0}", 'rewards = "REWARDS"\nprices = {seconds_per_token = 0.5}'
)


def rewards_file(path, lengths=True):
    """16 prompts whose correct responses have 7 tokens and whose incorrect ones have 31."""
    rows = [
        {"key": str(key), "reward": reward} | ({"tokens": 31 - 24 * reward} if lengths else {})
        for key in range(16)
        for reward in (1, 0, 1, 0)
    ]
    return write_rows(path, rows)


def test_recorded_rewards_give_pass_rates_and_lengths(tmp_path, write, say):
    text = REWARDS.replace("REWARDS", str(rewards_file(tmp_path / "rewards.jsonl")))
    shown = say("plan", tmp_path / "out", write(text))
    assert re.search(r"16 prompts, mean pass rate 0\.[456]", shown)
    plan = json.loads((tmp_path / "out/plan.json").read_text(encoding="utf-8"))["GRPO"]
    correct = (31 * 16 - plan["tokens"]["value"]) / (31 - 7)
    assert correct == pytest.approx(8, abs=4)  # of 16 draws a step, 4 steps: ± 2.8 deviations
    assert plan["seconds"]["value"] == pytest.approx(0.5 * 31)
    text += "[prices]\nmedian = 20\nsigma = 0\n"
    text = text.replace("prices = {seconds_per_token = 0.5}\n", "")
    say("plan", tmp_path / "given", write(text))
    plan = json.loads((tmp_path / "given/plan.json").read_text(encoding="utf-8"))["GRPO"]
    assert plan["tokens"]["value"] == 320


def test_recorded_lengths_are_cut_where_the_prices_say(tmp_path, write, say):
    text = REWARDS.replace("REWARDS", str(rewards_file(tmp_path / "rewards.jsonl")))
    say("plan", tmp_path / "out", write(text.replace("prices = {", "prices = {longest = 7, ")))
    plan = json.loads((tmp_path / "out/plan.json").read_text(encoding="utf-8"))["GRPO"]
    assert plan["tokens"]["value"] == 16 * 7


@pytest.mark.parametrize(
    ("lengths", "change", "said"),
    [
        (False, ("", ""), "says nothing of lengths: give `prices.median`"),
        (True, ("[base]", "[pass_rates]\nalpha = 1\n[base]"), "got `rewards` and `alpha`"),
        (True, ("prices = {", "prices = {sigma = 1, "), "`prices.sigma` needs `prices.median`"),
        (
            True,
            ("[methods.GRPO]", "[methods.GRPO]\ngrading.positive_threshold = 0.2"),
            "`grading.positive_threshold` belongs in `base`",
        ),
    ],
)
def test_what_recorded_rewards_lack_is_said(tmp_path, write, say, lengths, change, said):
    file = rewards_file(tmp_path / "rewards.jsonl", lengths)
    text = REWARDS.replace("REWARDS", str(file)).replace(*change)
    assert said in say("plan", tmp_path / "out", write(text), code=2)
