"""The charts of a run."""

import numpy as np
import pytest
from made_runs import make_run, read, step_line

from rollwise.reports import write_report
from rollwise.reports.charts import RunCharts


def test_charts_are_drawn_over_steps_draws_tokens_and_minutes(run):
    grids = read(run).data["grids"]
    assert grids["steps"] == {
        "steps": [1, 2, 3],
        "draws": [48, 96, 144],
        "tokens": [500, 1000, 1500],
        "minutes": [1.5, 2.5, 3.5],
    }
    assert grids["evaluations"]["steps"] == [0, 3]
    assert grids["evaluations"]["tokens"] == [0, 1500]


def test_a_figure_that_some_steps_lack_has_gaps_and_a_mean_of_the_rest():
    lines = [step_line(step) | {"entropy": [1.0, None, 3.0][step - 1]} for step in (1, 2, 3)]
    plain, smooth = next(c for c in RunCharts(lines).charts if c["id"] == "entropy")["lines"]
    assert plain["group"] == smooth["label"] == "nats per token, mean of 3 steps"
    np.testing.assert_equal(plain["values"], [1.0, np.nan, 3.0])
    np.testing.assert_equal(smooth["values"], [1.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("norms", "logarithmic"), [((1, 1, 50), True), ((1, 1, 5), False), ((0, 1, 50), False)]
)
def test_an_axis_is_logarithmic_where_one_value_flattens_the_rest(norms, logarithmic):
    lines = [step_line(step) | {"grad_norm": norm} for step, norm in enumerate(norms, 1)]
    (gradient,) = (chart for chart in RunCharts(lines).charts if chart["id"] == "gradient")
    assert gradient.get("log", False) is logarithmic
    assert ("logarithmic" in gradient["about"]) is logarithmic


def test_what_a_sampler_has_learnt_is_plotted(tmp_path):
    rated = {"difficulty_p10": -1.0, "difficulty_p50": 0.0, "difficulty_p90": 1.0}
    path = make_run(tmp_path / "rated", more=rated | {"competence": 0.5})
    write_report(path)
    charts = read(path).charts
    assert charts["competence"]["lines"][0]["low"] == [-1, -1, -1]
    assert [each["colour"] for each in charts["competence"]["lines"]] == [1, 0]


def test_single_responses_have_no_charts_of_groups():
    groups, single = [step_line(1)], [step_line(1) | {"prompts": 48, "draws_per_prompt": 1.0}]
    names = [{chart["id"] for chart in RunCharts(lines).charts} for lines in (groups, single)]
    assert names[0] - names[1] == {"zero_variance", "exits", "rounds"}
