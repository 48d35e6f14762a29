"""The other reports in a browser: of evaluations and comparisons."""

import pytest
from in_browser import HOSTILE_NAME, SIZES, choose, run_script, wait_for
from test_comparison_report import compared
from test_evaluation_report import FOUR, evaluation

from rollwise.reports.page import write_page

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize(("width", "theme"), SIZES)
def test_the_other_reports_open_too(show, tmp_path, width, theme):
    ends = {HOSTILE_NAME: [0.5, 0.6], "other": [0.7, 0.8]}
    (tmp_path / "e").mkdir()
    evaluated = evaluation(tmp_path / "e", FOUR, 0.25, ["12", "7", "", "12"], HOSTILE_NAME)
    comparison = compared(tmp_path / "c", ends)
    for report, charts in ((comparison, 5), (evaluated, 2)):
        page = show(report, width, theme)
        assert run_script(page, "charts.size") == charts
        assert run_script(page, "controls === null")  # they have one axis
        assert run_script(page, "document.documentElement.scrollWidth") <= width
        assert run_script(page, "document.querySelectorAll('.chart canvas').length") == charts


def column(page, at):
    rows = "[...document.querySelector('main table').tBodies[0].rows]"
    return run_script(page, f"{rows}.map((row) => row.cells[{at}].innerText)")


def test_the_difference_of_a_method_is_seen_on_a_phone(show, tmp_path):
    cells = [
        "default",
        "0.631\n[0.613, 0.648]",
        "+0.202\n[+0.176, +0.228]",
        "better",
        "0.63",
        "0.6",
    ]
    header = ["method", "mean", "difference", "verdict", "IQM", "worst"]
    content = {"sentences": [], "tables": [("A", header, [cells])], "baseline": ""}
    page = show(write_page(tmp_path, "methods.html", {"charts": [], "grids": {}}, **content), 400)
    end = "document.querySelector('main table').rows[1].cells[3].getBoundingClientRect().right"
    assert run_script(page, end) <= 400


def test_every_table_is_sorted_by_numbers_by_texts_and_with_nothing_last(show, tmp_path):
    cells = ["12", "≥ 3.5", "1,000", "–", "+0.5 [0.1, 2]", "−7", "text", "40 %"]
    tables = [("A table", ["name", "value"], [[f"n{at}", cell] for at, cell in enumerate(cells)])]
    content = {"sentences": [], "tables": tables, "baseline": ""}
    page = show(write_page(tmp_path, "methods.html", {"charts": [], "grids": {}}, **content))
    run_script(page, "document.querySelectorAll('main th .sort')[1].click()")
    assert column(page, 1) == ["−7", "+0.5 [0.1, 2]", "≥ 3.5", "12", "40 %", "1,000", "text", "–"]
    run_script(page, "document.querySelectorAll('main th .sort')[1].click()")
    assert column(page, 1)[0] == "1,000" and column(page, 1)[-1] == "–"
    header = "document.querySelectorAll('main th .sort')[1].parentElement.ariaSort"
    assert run_script(page, header) == "descending"


@pytest.mark.parametrize(("width", "theme"), SIZES)
def test_responses_of_an_evaluation_are_filtered_and_show_what_was_read(
    show, tmp_path, width, theme
):
    page = show(evaluation(tmp_path, FOUR, 0.25, ["12", "7", "", "12"]), width, theme)
    row = run_script(page, "document.querySelector('.prompt summary').innerText")
    assert "pass rate 0.500 of 4 responses · baseline 0.250 · math500 · level 2" in row
    texts = "[...document.querySelectorAll('.response pre')].map((p) => p.textContent)"
    for name, wanted in (
        ("", ["a", "d", "b", "c"]),
        ("incorrect", ["b", "c"]),
        ("truncated", ["b"]),
        ("unanswered", ["c"]),
    ):
        choose(page, "prompt-filter", name)
        run_script(page, "document.querySelector('.prompt').open = true")
        wait_for(page, "document.querySelector('.response pre') !== null")
        assert run_script(page, texts) == wanted
    assert run_script(page, "document.querySelector('.read').innerText") == "no answer found"
    choose(page, "prompt-filter", "truncated")
    wait_for(page, "document.querySelector('.read')?.innerText === 'read as the answer: 7'")
    assert run_script(page, "document.documentElement.scrollWidth") <= width
    choose(page, "prompt-order", "better")
    assert run_script(page, "document.getElementById('prompt-count').innerText") == "1 problem"
