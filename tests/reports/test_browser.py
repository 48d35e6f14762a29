"""The report of a run in a browser: no script fails, nothing that a model wrote runs.

Needs Chromium with its driver (Debian: `chromium`, `chromium-driver`) and selenium; run with
`pytest -m browser`.
"""

import time

import pytest
from in_browser import HOSTILE_NAME, SIZES, choose, run_script, wait_for
from made_runs import HOSTILE, LEDGER, make_run, sample, step_line, visit

from rollwise.records import RunFolder
from rollwise.reports import write_report

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A run with hostile questions, answers and responses, warnings, and all kinds of charts."""
    texts = [*HOSTILE, "<script>window.pwned = 1</script>", HOSTILE_NAME, "</script>"]
    samples = [
        sample(step, index, text, question=HOSTILE_NAME, answer=HOSTILE_NAME, key="evil")
        for step in (11, 12)
        for index, text in enumerate(texts * 3)
    ]
    more = {
        "ledger": LEDGER,
        "clip_fraction": 0.5,
        "belief_skill": 0.25,
        "truncated": 0.3,
        "competence": 0.5,
        "difficulty_p10": -1.0,
        "difficulty_p50": 0.0,
        "difficulty_p90": 1.0,
    }
    name = HOSTILE_NAME.replace("/", "")
    path = make_run(tmp_path_factory.mktemp("runs") / name, 12, more=more)
    folder = RunFolder(path)
    folder.samples.keep(samples)
    for step in range(1, 13):
        folder.keep_visit(step, visit(step, "evil", correct=step % 5), HOSTILE_NAME)
        for number in range(4):
            reason = ("satisfied", "exhausted", "futile")[number % 3]
            key = f"{number}-{step}"
            beliefs = {(0, 11): 0.9, (0, 12): 0.1}
            row = visit(step, key, correct=number, exit_reason=reason)
            row["expected"] = beliefs.get((number, step), row["expected"])
            folder.keep_visit(step, row, f"question {key}?")
    folder.flush_samples()
    return write_report(path)


@pytest.mark.parametrize(("width", "theme"), SIZES)
def test_the_page_of_a_run_opens_at_any_size_and_in_both_themes(show, report, width, theme):
    page = show(report, width, theme)
    assert run_script(page, "document.documentElement.scrollWidth") <= width
    assert run_script(page, "charts.size") == run_script(page, "report.charts.length") > 10
    assert run_script(page, "[...charts.values()].every((c) => c.uplot.width <= innerWidth)")
    assert run_script(page, "document.querySelectorAll('h1').length") == 1
    assert run_script(page, "document.querySelectorAll('main img, main script').length") == 0
    paper = run_script(page, "getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 24, 28)" if theme == "dark" else "rgb(255, 255, 255)")
    ticks = run_script(page, "document.body.innerText")
    assert "High clip fraction" in ticks and "1e" not in ticks.split("Settings")[0]
    run_script(page, "document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    wait_for(page, "document.querySelector('.response pre') !== null")
    assert run_script(page, "document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("width", "theme"), SIZES)
def test_what_a_model_wrote_is_shown_as_it_is(show, report, width, theme):
    page = show(report, width, theme)
    run_script(page, "document.querySelector('.prompt').open = true")
    wait_for(page, "document.querySelector('.response pre') !== null")
    run_script(page, "document.querySelectorAll('.sides button').forEach((b) => b.click())")
    shown = run_script(
        page, "[...document.querySelectorAll('.response pre')].map((p) => p.textContent)"
    )
    assert sorted(set(shown)) == sorted(
        {*HOSTILE, "<script>window.pwned = 1</script>", HOSTILE_NAME, "</script>"}
    )
    assert run_script(page, "document.querySelector('.question').textContent") == HOSTILE_NAME


@pytest.mark.parametrize(("width", "theme"), SIZES)
def test_charts_are_zoomed_read_and_switched(show, report, width, theme):
    from selenium.webdriver import ActionChains, Keys

    page = show(report, width, theme)
    ends = "(({min, max}) => [min, max])(charts.get('reward').uplot.scales.x)"
    assert run_script(page, ends) == [1, 12]
    for field, value in (("chart-from", 4), ("chart-to", 8)):
        choose(page, field, value)
    assert run_script(page, ends) == [4, 8]
    assert run_script(page, ends.replace("reward", "entropy")) == [4, 8]  # zoomed together
    run_script(page, "document.getElementById('chart-all').click()")
    assert run_script(page, ends) == [1, 12]

    plot = page.find_element("css selector", "#chart-reward .u-over")
    run_script(page, "arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(page).move_to_element_with_offset(plot, -100, 0).click_and_hold().move_by_offset(
        150, 0
    ).release().perform()
    low, high = run_script(page, ends)
    assert 1 < low < high < 12
    assert page.find_element("id", "chart-from").get_property("value") == f"{low:.2f}".rstrip("0")
    ActionChains(page).double_click(plot).perform()
    assert run_script(page, ends) == [1, 12]

    page.find_element("css selector", "#chart-reward .plot").send_keys(Keys.END)
    spoken = "document.querySelector('#chart-reward [aria-live]').textContent"
    assert run_script(page, spoken) == "step 12: reward, mean of 10 steps 0.25, of the step 0.25"
    page.find_element("css selector", "#chart-reward .plot").send_keys(Keys.ARROW_LEFT)
    assert run_script(page, spoken).startswith("step 11: reward, mean of 10 steps 0.25")
    page.find_element("css selector", "#chart-reward .plot").send_keys("+")
    low, high = run_script(page, ends)
    assert (low, high) == (11 - 11 / 4, 12)  # half as wide, around step 11
    page.find_element("css selector", "#chart-reward .plot").send_keys("0")

    button = page.find_element("css selector", "#chart-zero_variance .legend button")
    run_script(page, "arguments[0].click()", button)
    assert button.get_attribute("aria-pressed") == "false"
    assert run_script(page, "charts.get('zero_variance').uplot.series[1].show") is False
    run_script(page, "arguments[0].click()", button)
    assert run_script(page, "charts.get('zero_variance').uplot.series[1].show") is True

    run_script(page, "document.querySelector('#chart-heldout details').open = true")
    wait_for(page, "document.querySelectorAll('#chart-heldout tbody tr').length === 2")
    cells = run_script(page, "document.querySelector('#chart-heldout tbody').innerText")
    assert cells.split("\n")[0].split("\t") == ["0", "0.25 [0.15, 0.35]", "0.25 [0.15, 0.35]"]

    axis = page.find_element("id", "chart-axis")
    axis.send_keys("tokens")
    assert run_script(page, ends) == [500, 6000]
    assert "against tokens" in run_script(
        page, "document.querySelector('#chart-reward .plot').getAttribute('aria-label')"
    )


@pytest.mark.parametrize(("width", "theme"), SIZES)
def test_prompts_are_searched_sorted_and_opened(show, report, width, theme):
    page = show(report, width, theme)
    count = "document.getElementById('prompt-count').textContent"
    shown = "[...document.querySelectorAll('.question')].map((q) => q.textContent)"

    assert run_script(page, count) == "49 prompts, the first 25 shown"
    run_script(page, "document.getElementById('prompt-more').click()")
    assert len(run_script(page, shown)) == 49
    choose(page, "prompt-search", "question 3-12", "input")
    assert run_script(page, shown) == ["question 3-12?"]
    choose(page, "prompt-search", "", "input")
    choose(page, "prompt-order", "hardest")
    assert run_script(page, shown)[0].startswith("question 0-")
    choose(page, "prompt-order", "easiest")
    assert run_script(page, shown)[0].startswith("question 3-")
    choose(page, "prompt-order", "visits")
    assert run_script(page, shown)[0] == HOSTILE_NAME
    choose(page, "prompt-order", "expected")
    assert run_script(page, shown)[0] == "question 0-11?"
    choose(page, "prompt-order", "unexpected")
    assert run_script(page, shown)[0] == "question 0-12?"
    choose(page, "prompt-order", "exit")
    assert run_script(page, shown)[0].startswith("question 1-")  # exhausted comes first
    choose(page, "prompt-exit", "futile")
    assert run_script(page, count) == "12 prompts"
    choose(page, "prompt-exit", "")
    run_script(page, "document.getElementById('prompt-only').click()")
    assert run_script(page, shown) == [HOSTILE_NAME]

    run_script(page, "document.querySelector('.prompt summary').click()")
    wait_for(page, "document.querySelector('.sides') !== null")
    opened = run_script(page, "document.querySelector('.opened').innerText")
    assert "Step 12: 2 of 4 correct. Sampling ended because the exit rule was met" in opened
    assert "Correct: 13" in opened and "Incorrect: 14" in opened
    choice = page.find_element("css selector", ".opened select")
    choice.send_keys("step 11")
    assert "Step 11: 1 of 4 correct" in run_script(
        page, "document.querySelector('.opened').innerText"
    )
    assert run_script(page, "document.querySelector('.opened canvas') !== null")


def test_a_prompt_is_sorted_and_shown_by_all_its_responses_not_by_the_last(show, tmp_path):
    path = make_run(tmp_path / "run")
    folder = RunFolder(path)
    for step, (often, seldom) in enumerate([(1, 0), (1, 0), (0, 1)], 1):
        for key, correct in (("often", often), ("seldom", seldom)):
            folder.keep_visit(step, visit(step, key, drawn=1, correct=correct), f"{key}?")
    folder.flush_samples()
    page = show(write_report(path))
    shown = "[...document.querySelectorAll('.prompt summary')].map((s) => s.innerText)"
    choose(page, "prompt-order", "easiest")
    often, seldom = run_script(page, shown)
    assert often.startswith("often?") and "pass rate 0.667 of 3 responses · step 3" in often
    assert seldom.startswith("seldom?") and "pass rate 0.333 of 3 responses" in seldom
    choose(page, "prompt-order", "hardest")
    assert run_script(page, shown) == [seldom, often]


def test_a_finding_leads_to_its_chart_and_words_are_explained(show, report):
    page = show(report)
    leads = run_script(page, "[...document.querySelectorAll('.warnings a')].map((a) => a.hash)")
    assert "#chart-clipping" in leads
    assert all(run_script(page, "document.querySelector(arguments[0]) !== null", x) for x in leads)
    contents = run_script(page, "[...document.querySelectorAll('#contents a')].map((a) => a.hash)")
    assert len(contents) == run_script(page, "document.querySelectorAll('main h2').length") > 4
    assert all(
        run_script(page, "document.querySelector(arguments[0]) !== null", x) for x in contents
    )
    said = run_script(page, "document.body.innerText")
    for words in (
        "A visit is a step that sampled the prompt",
        "Satisfied: the exit rule was met",
        "drawn for such a prompt, but not chosen for its group",
        "An importance weight is a token's probability under the learner over that",
    ):
        assert words in said
    choose(page, "prompt-search", "question 3-12", "input")
    run_script(page, "document.querySelector('.prompt').open = true")
    wait_for(page, "document.querySelector('.opened') !== null")
    opened = run_script(page, "document.querySelector('.opened').innerText")
    assert (
        "of each step, those of 4 prompts are kept. The setting records.prompts_per_step" in opened
    )


def test_the_page_of_a_run_under_way_reloads_itself_unless_it_is_read(show, tmp_path):
    path = make_run(tmp_path / "run", samples=[sample(1, 0, "7=7"), sample(2, 0, "8=8")])
    page = show(write_report(path, under_way=True, reload=0.5))
    page.execute_script("document.querySelector('.prompt').open = true")
    RunFolder(path).log(step_line(4) | {"ledger": LEDGER})
    write_report(path, under_way=True, reload=0.5)
    time.sleep(1.5)
    assert "3 steps" in run_script(page, "document.getElementById('summary').innerText")
    page.execute_script("document.querySelector('.prompt').open = false")
    wait_for(page, "document.getElementById('summary')?.innerText.includes('4 steps') ?? false")
    wait_for(page, "typeof charts !== 'undefined' && charts.get('reward').x.length === 4")
    page.get("about:blank")
