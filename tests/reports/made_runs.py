"""Runs that are made by hand, and what reads their reports."""

import json
from dataclasses import asdict
from html.parser import HTMLParser

from rollwise.config import make_config
from rollwise.records import RunFolder

VOID = {"meta", "link", "br", "hr", "img", "input"}

LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}


class Page(HTMLParser):
    """Reads a page strictly: what is opened is closed, in order; gathers its parts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        if tag in ("td", "dd"):
            self.text += " "

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in LOADING]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.text += data

    @property
    def data(self):
        return json.loads(self.scripts[0])

    @property
    def prompts(self):
        return {prompt["question"]: prompt for prompt in self.data["prompts"]}

    @property
    def texts(self):
        """All responses, in the order of the page."""
        visits = [visit for prompt in self.data["prompts"] for visit in prompt["responses"]]
        return [row[5] for visit in visits for row in visit["rows"]]

    @property
    def charts(self):
        return {chart["id"]: chart for chart in self.data["charts"]}


LEDGER = {
    "draws": {"trained": 16, "spare": 20, "zero_variance": 8, "surplus": 4, "failed": 2},
    "tokens": {"trained": 160, "spare": 200, "zero_variance": 80, "surplus": 60},
    "truncated": {"draws": 3, "tokens": 30},
}

ALL_TRAINED = {
    "draws": {"trained": 48},
    "tokens": {"trained": 500},
    "truncated": LEDGER["truncated"],
}

BALANCED = make_config({"method": "reinforce_ada"})

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></td></tr></table><h1>pwned</h1>",
    "<!-- ",
    "&lt;b&gt; &amp; {{ 7 * 7 }} {% raw %}",
    '"><img src=http://example.org/x onerror=alert(1)>',
    "]]> <![CDATA[ <?php ?>",
]


def evaluated(value):
    around = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return {"avg@8": around, "pass@8": around}


def step_line(step):
    return {
        "step": step,
        "reward": 0.25,
        "zero_variance_first": 0.5,
        "zero_variance_after": 0.125,
        "prompts": 4,
        "draws": 48,
        "draws_per_prompt": 12.0,
        "draws_by_round": [8.0, 4.0, 0.0, 0.0],
        "surplus_draws": 0,
        "pass_rate_by_expected": [[0.2, 0.1], [0.6, 0.7]],
        "tokens": 500,
        "exits": {"satisfied": 3, "exhausted": 1, "futile": 0},
        "lost_draws": 1,
        "ledger": ALL_TRAINED,
        "grader_failures": 2,
        "entropy": 0.75,
        "seconds": {"sampling": 1.0, "grading": 0.1, "learning": 0.5},
        "elapsed": 60.0 * step + 30,
    }


def sample(step, index, response, question="7+5?", **others):
    return {
        "step": step,
        "key": question,
        "question": question,
        "answer": "12",
        "index": index,
        "response": response,
        "reward": float(index % 2),
        "advantage": None if index > 3 else 0.5 - index % 2,
        "exit_reason": "satisfied",
    } | others


def visit(step, key, correct=1, **others):
    return {
        "key": key,
        "correct": correct,
        "drawn": 4,
        "reward": correct / 4,
        "expected": 0.5,
        "strength": 6.0,
        "trained": 2,
        "exit_reason": "satisfied",
    } | others


def visits_of(samples):
    """The visits in which some responses were drawn."""
    drawn = {}
    for row in samples:
        drawn.setdefault((row["step"], row["key"]), []).append(row)
    for (step, key), rows in drawn.items():
        correct = sum(row["reward"] > 0.5 for row in rows)
        yield step, visit(step, key, correct, drawn=len(rows)), rows[0]["question"]


def make_run(path, steps=3, samples=(), more=None, **settings):
    folder = RunFolder(path)
    folder.create(asdict(make_config(settings)))
    folder.log({"step": 0, "heldout": evaluated(0.25), "elapsed": 12.0})
    for step in range(1, steps + 1):
        at_end = {"heldout": evaluated(0.625)} if step == steps else {}
        folder.log(step_line(step) | at_end | (more or {}))
    folder.samples.keep(samples)
    for step, row, question in visits_of(samples):
        folder.keep_visit(step, row, question)
    folder.flush_samples()
    return path


def read(path):
    return Page((path / "report.html").read_text(encoding="utf-8"))
