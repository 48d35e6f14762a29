"""`rollwise compare`: whole comparisons of tiny runs, interrupted, extended, and refused."""

import json
import re
import shutil
import tomllib

import pytest
from drawn import contents_of

from rollwise.cli import main
from rollwise.commands import compare_runs
from rollwise.config import CompareConfig, make_config, make_settings
from rollwise.errors import ConfigError
from rollwise.records import RunFolder
from rollwise.statistics.curves import COSTS

pytestmark = pytest.mark.usefixtures("forked")

TOML = """
steps = 2
seeds = 2
evaluations = 2

[base]
prompts = {batch_size = 4}
data = {problems = 32, max_terms = 4}
engine = {max_new_tokens = 16}
evaluation = {problems = 4, samples = 2}
checkpoint = {every = 1}

[methods.GRPO]
method = "grpo"
exit = {samples = 2}

[methods."own | <b>rule"]
method = "reinforce_ada"
schedule = {size = 2, rounds = 2}
group = {size = 2}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of a comparison that was not interrupted."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "methods.toml").write_text(TOML, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_runs, "START", "fork")
        out = folder / "out"
        assert main(["compare", str(folder / "methods.toml"), "--output", str(out)]) == 0
    return out


def runs_of(folder):
    """The curves of all runs, without seconds, which are never the same twice."""
    runs = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["runs"]
    return {
        (method, seed): {cost: curve[cost] for cost in ("accuracy", "steps", "tokens")}
        for method, curves in runs.items()
        for seed, curve in curves.items()
    }


@pytest.mark.slow
def test_what_a_comparison_writes(done):
    runs = runs_of(done)
    assert [*runs] == [(m, seed) for m in ("GRPO", "own | <b>rule") for seed in ("0", "1")]
    assert all(curve["steps"][-1] == 2 for curve in runs.values())
    assert runs["GRPO", "0"]["tokens"] != runs["GRPO", "1"]["tokens"]
    content = json.loads((done / "comparison.json").read_text(encoding="utf-8"))
    assert content["baseline"] == "GRPO"
    ends = [runs["GRPO", seed]["accuracy"][-1] for seed in ("0", "1")]
    assert content["target"] == pytest.approx(sum(ends) / 2)
    assert content["methods"]["GRPO"]["accuracy"]["value"] == pytest.approx(sum(ends) / 2)
    page = (done / "report.html").read_text(encoding="utf-8")
    assert "own | &lt;b&gt;rule" in page
    assert "<b>" not in page
    assert 'href="runs/GRPO/seed-0/report.html"' in page
    assert (done / "runs/GRPO/seed-0/report.html").exists()
    assert "own \\| <b>rule" in (done / "comparison.md").read_text(encoding="utf-8")
    config = make_config(RunFolder(done / "runs/GRPO/seed-1").read_config())
    assert (config.seed, config.steps, config.evaluation.every) == (1, 2, 1)
    (done / "report.html").unlink()
    assert main(["report", str(done)]) == 0
    again = (done / "report.html").read_text(encoding="utf-8")
    assert again.endswith(page.partition("<main>")[2])


@pytest.mark.slow
def test_what_is_recorded_is_not_repeated_and_others_are_refused(done, tmp_path, write, say):
    """Even without the folders of its runs; more seeds and another method are added to it."""
    shutil.copytree(done, tmp_path / "out")
    shutil.rmtree(tmp_path / "out/runs")
    (tmp_path / "out/config.json").unlink()
    more = write(TOML + '[methods.third]\nseeds = 1\nmethod = "grpo"\n')
    shown = say("compare", tmp_path / "out", more, "--seeds", "3")
    assert "Training: 3 of 7 runs to do, " in shown
    made = {p.parent.name + p.name for p in (tmp_path / "out").glob("runs/*/seed-*")}
    assert made == {"GRPOseed-2", "own-b-ruleseed-2", "thirdseed-0"}
    assert runs_of(tmp_path / "out").items() >= runs_of(done).items()
    assert re.search("no difference is shown|better|worse|no spread to", shown)
    other = write(TOML.replace("max_terms = 4", "max_terms = 5"))
    shown = say("compare", tmp_path / "out", other, code=2)
    assert "`data.max_terms` cannot change" in shown and "has 4, and this command 5" in shown
    for name in ("steps", "evaluations"):
        shown = say("compare", tmp_path / "out", write(TOML), f"--{name}", "1", code=2)
        assert re.search("of the runs in .* runs can only", shown)
    by_tokens = write(TOML.replace("steps = 2", "tokens = 500"))
    say("compare", tmp_path / "out", by_tokens, code=2)
    assert json.loads((tmp_path / "out/config.json").read_text())["config"]["steps"] == 2


def test_a_run_that_lost_its_checkpoints_is_refused_and_nothing_of_it_is_removed(
    tmp_path, write, say
):
    """They are what takes space on the disk; its figures and notes are all that is left."""
    text = TOML.split('[methods."own')[0].replace("seeds = 2", "seeds = 1")
    say("compare", tmp_path / "out", write(text))
    run = tmp_path / "out/runs/GRPO/seed-0"
    shutil.rmtree(run / "checkpoints")
    (run / "notes.txt").write_text("mine")
    before = contents_of(run)
    shown = say("compare", tmp_path / "out", write(text), "--steps", "3", code=2)
    assert "seed-0 has done 2 steps, and has no checkpoint" in shown
    assert contents_of(run) == before


CURVE = '"curve": ' + json.dumps({name: [0.5] for name in ("accuracy", *COSTS)})


@pytest.mark.parametrize(
    "line",
    [
        '{"run": "runs/a/seed-0", "settings": {}}',
        '{"run": "a", "settings": {}, "curve": {"accuracy": [1]}}',
        f'{{"run": 3, "settings": {{}}, {CURVE}}}',
    ],
)
def test_records_that_cannot_be_compared_are_named(tmp_path, write, say, line):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/curves.jsonl").write_text(line + "\n")
    shown = say("compare", tmp_path / "out", write(TOML), code=2)
    assert "curves.jsonl, line 1, is broken" in shown
    assert "Traceback" not in shown
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["curves.jsonl"]


@pytest.mark.slow
def test_each_method_takes_its_best_settings(tmp_path, write, say):
    """The one that learns nothing at all is not it, and half of them are tried once."""
    text = TOML.split('[methods."own')[0].replace("steps = 2", "steps = 6")
    text = text.replace("seeds = 2", "seeds = 1")
    text = text.replace("problems = 4, samples = 2", "problems = 16, samples = 4")
    text += (
        '[choose]\n"learner.learning_rate" = [1e3, 2e-4, 1e2]\n[choosing]\nseeds = 2\nshare = 0.5\n'
    )
    say("compare", tmp_path / "out", write(text))
    content = json.loads((tmp_path / "out/comparison.json").read_text(encoding="utf-8"))
    assert content["chosen"] == {"GRPO": {"learner.learning_rate": 2e-4}}
    place = tmp_path / "out/choosing"
    tried = sorted(str(folder.relative_to(place)) for folder in place.glob("*/*"))
    assert len(tried) == 3 + 2
    assert "GRPO,learning_rate=0.0002/seed-1001" in tried
    assert RunFolder(place / tried[0]).read_config()["steps"] == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give `methods` to compare"),
        ({"methods": {"a": {}}}, "give one of `steps`, `tokens` and `seconds`; got none"),
        ({"methods": {"a": {}}, "steps": 1, "tokens": 1}, "got `steps` and `tokens`"),
        (
            {"methods": {"a": {}}, "steps": 1, "baseline": "b"},
            "`baseline` must be one .*; it is .b.",
        ),
        ({"methods": {"a": {}}, "steps": 1, "seeds": 2000}, "`seeds` must be at most 1,000"),
        ({"methods": {"a": {}}, "steps": 1, "only": ["b"]}, "`only` must be one of the methods"),
        ({"methods": {"a": {"seeds": 0}}, "steps": 1}, "`methods.a.seeds` must be at least 1"),
        ({"methods": {"a": {"seeds": True}}, "steps": 1}, "`methods.a.seeds` .* it is True"),
        (
            {"methods": {"a": {"seed": 7}}, "steps": 1},
            "`seed` is the same .*; it is in `methods.a`",
        ),
        ({"base": {"steps": 7}, "methods": {"a": {}}, "tokens": 1}, "`steps` is .* in `base`"),
        (
            {"methods": {"a": {"choose": {"x": 1}}}, "steps": 1},
            "`methods.a.choose.x` must be a list",
        ),
        ({"methods": {"a": {}}, "steps": 1, "sedes": 3}, "did you mean `seeds`"),
    ],
)
def test_settings_that_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        make_settings(CompareConfig, given)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"a": {"exit": {"type": "fixed_cout"}}}, "method `a`: `exit.type` must be one of"),
        ({"a": {"choose": {"learner.rate": [1]}}}, "`a`: there is no setting `learner.rate`"),
        ({"a": {"choose": {"seed": []}}}, "`choose`: `seed` has no values to choose from"),
        ({"a b": {}, "a/b": {}}, "the same folder name: a-b, a-b"),
    ],
)
def test_bad_methods_are_named_before_anything_runs(tmp_path, say, methods, message):
    options = ["--steps", "1", "--methods", json.dumps(methods)]
    assert message in say("compare", tmp_path / "out", *options, code=2)
    assert not (tmp_path / "out").exists()


def test_lengths_are_shared_out_over_the_evaluations():
    given = {"methods": {"a": {}}, "evaluations": 4, "choosing": {"share": 1 / 3}}
    by_tokens = make_settings(CompareConfig, given, {"tokens": 1000})
    assert by_tokens.run_settings("a", 3, {"learner.learning_rate": 1.0}) == {
        "learner": {"learning_rate": 1.0},
        "seed": 3,
        "tokens": 1000,
        "evaluation": {"every": 0, "every_tokens": 250},
    }
    shorter = by_tokens.run_settings("a", 3, {}, choosing=True)
    assert (shorter["tokens"], shorter["evaluation"]["every_tokens"]) == (333, 333)
    by_seconds = make_settings(CompareConfig, given, {"seconds": 60})
    assert by_seconds.run_settings("a", 0, {}) == {"seed": 0, "seconds": 60}


def test_the_documentation_shows_what_a_method_may_choose(root):
    page = (root / "docs/compare.md").read_text(encoding="utf-8")
    comparison, choice, _ = map(tomllib.loads, re.findall(r"```toml\n(.*?)```", page, re.DOTALL))
    config = make_settings(CompareConfig, comparison, choice)
    config.check_methods()
    assert len(config.candidates("single")) == 9
