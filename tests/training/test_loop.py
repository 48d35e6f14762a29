"""The loop: a step taken apart with fakes, and whole runs that are stopped and resumed."""

import copy
import dataclasses
import itertools
import random
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rollwise.config import make_config
from rollwise.engines import Completion, Engine
from rollwise.errors import ConfigError, RunError
from rollwise.grading import Grader
from rollwise.models.loading import in_bfloat16
from rollwise.prompts import Uniform
from rollwise.records import RunFolder, Trackers
from rollwise.sampling import GVM, Estimated
from rollwise.sampling.session import draw_seed
from rollwise.signals import Dropped
from rollwise.step import draw_rollouts
from rollwise.training.loop import draw, evaluate, learn, train
from rollwise.training.run import resume_run, start_run
from rollwise.training.state import Run

TRAINED = [f"train {i}" for i in range(10)]
HELDOUT = [f"held out {i}" for i in range(5)]
LUCK = {key: (i % 5) / 4 for i, key in enumerate([*TRAINED, *HELDOUT])}


def train_step(run, step):
    return learn(run, *draw(run, step))


def is_right(key, seed):
    return random.Random(seed).random() < LUCK[key]


class FakeEngine(Engine):
    """Completes all that is submitted, right or wrong by the draw's seed."""

    def __init__(self):
        self.submitted, self.under_way, self.weights = [], [], []
        self.is_right = lambda draw: is_right(draw.key, draw.seed)

    free_slots = None

    def submit(self, draws, prompts):
        assert all(prompts[draw.key] for draw in draws)
        self.under_way += draws
        self.submitted += draws

    def wait(self):
        done, self.under_way = self.under_way, []
        return [
            Completion(d, [d.index, 1], np.zeros(2, np.float32), str(self.is_right(d)), False)
            for d in done
        ]

    def cancel(self, draws):
        return 0

    def load_weights(self, weights):
        self.weights.append(weights)


class FakeGrader(Grader):
    """Reads the reward from the response, and counts a failure a call."""

    def grade(self, responses, answers):
        self.failures += 1
        return np.array([float(response == "True") for response in responses])


class FakeLearner:
    """Notes what it is given; its weights are the number of updates."""

    def __init__(self):
        self.learnt = []

    def learn(self, examples):
        self.learnt.append(examples)
        return {"loss": 0.25}

    def weights(self):
        return len(self.learnt)


class Listening(Uniform):
    """Notes what it is told."""

    def tell(self, keys, correct, drawn):
        super().tell(keys, correct, drawn)
        self.told = dict(zip(keys, zip(correct, drawn, strict=True), strict=True))


def make_run(tmp_path, **settings):
    config = make_config(
        {
            "seed": 3,
            "prompts": {"batch_size": 6},
            "evaluation": {"samples": 4},
            "records": {"prompts_per_step": 2},
            "schedule": {"type": "rounds", "size": 4, "rounds": 2},
        },
        settings,
    )
    folder = RunFolder(tmp_path / "run")
    folder.create(config.model_dump(mode="json"))
    keys = [*TRAINED, *HELDOUT]
    return Run(
        config=config,
        folder=folder,
        trackers=Trackers(),
        sampler=Listening(TRAINED, config.prompts.batch_size, config.seed),
        engine=FakeEngine(),
        grader=FakeGrader(),
        learner=FakeLearner(),
        tokenizer=None,
        prompts={key: [i] for i, key in enumerate(keys)},
        answers={key: f"answer to {key}" for key in keys},
        heldout=HELDOUT,
        questions={key: f"question of {key}" for key in keys},
    )


def expected_pool(key, step):
    """Balanced(2, 2) in two rounds of four, one draw at a time."""
    rewards = [is_right(key, draw_seed(3, step, key, i)) for i in range(8)]
    first = sum(rewards[:4])
    return rewards[:4] if first == 2 else rewards


def test_a_step_from_prompts_to_weights(tmp_path):
    run = make_run(tmp_path)
    asked = Uniform(TRAINED, 6, seed=3).ask()
    metrics = train_step(run, 5)

    pools = {key: expected_pool(key, 5) for key in asked}
    assert run.sampler.told == {key: (sum(pool), len(pool)) for key, pool in pools.items()}
    mixed = {key: pool for key, pool in pools.items() if 0 < sum(pool) < len(pool)}
    assert 0 < len(mixed) < len(pools)
    (examples,) = run.learner.learnt
    assert [example.prompt for example in examples] == [
        run.prompts[key] for key in mixed for _ in range(4)
    ]
    for example in examples:
        place, pool = example.response[0], mixed[TRAINED[example.prompt[0]]]
        assert example.advantage == pytest.approx(pool[place] - np.mean(pool))
    # The engine got the weights that came of it.
    assert run.engine.weights == [1]

    assert metrics["step"] == 5
    assert metrics["draws"] == sum(map(len, pools.values()))
    assert metrics["trained_groups"] == len(mixed)
    assert metrics["loss"] == 0.25
    assert metrics["epoch"] == pytest.approx(0.6)
    assert set(metrics["seconds"]) == {"sampling", "grading", "learning"}


def test_a_prompt_that_is_not_in_the_data_names_the_sampler(tmp_path):
    run = make_run(tmp_path)
    run.sampler = Uniform(["nowhere"], batch_size=1)
    with pytest.raises(ValueError, match=r"Uniform\.ask returned 'nowhere', which is no prompt"):
        train_step(run, 1)


def test_what_the_sampler_believes_reaches_a_streamed_session(tmp_path):
    run = make_run(tmp_path, schedule={"type": "streamed"}, exit={"give_up_below": 0.2})
    run.engine.free_slots = 24
    run.sampler.tell(TRAINED, correct=[0] * len(TRAINED), drawn=[6] * len(TRAINED))
    session = draw_rollouts(run.recipe, run.sampler, run.roll_out, 1).session
    # Beta(1 + 0, 1 + 6), rounded to a strength of 8 and a mean of 4/32.
    assert {pool.stopping.prior for pool in session.pools.values()} == {(1.0, 7.0)}
    assert "futile" in {pool.exit_reason for pool in session.pools.values()}
    assert session.done


def test_a_published_session_is_told_nothing_of_beliefs(tmp_path):
    run = make_run(tmp_path)
    run.sampler.tell(TRAINED, correct=[0] * len(TRAINED), drawn=[6] * len(TRAINED))
    pools = draw_rollouts(run.recipe, run.sampler, run.roll_out, 1).session.pools.values()
    assert {pool.stopping.prior for pool in pools} == {(1.0, 1.0)}


def sharing(tmp_path, **allocation):
    """A run whose draws are shared out beforehand, in one round."""
    return make_run(tmp_path, allocation=allocation, schedule={"size": 32, "rounds": 1})


def test_draws_are_shared_out_by_what_is_expected(tmp_path):
    run = sharing(tmp_path, type="estimated", mean_draws=5, maximum=16)
    solved = [len(TRAINED) // 2 > i for i in range(len(TRAINED))]
    run.sampler.tell(TRAINED, correct=[8 * s for s in solved], drawn=[8] * len(TRAINED))
    batch = draw_rollouts(run.recipe, run.sampler, run.roll_out, 1)
    expected = run.sampler.expected_pass_rates(list(batch.session.pools))
    drawn = [len(pool) for pool in batch.session.pools.values()]
    assert drawn == Estimated(mean_draws=5, maximum=16).counts(expected).tolist()
    assert sum(drawn) == 30
    assert len(set(drawn)) > 1


def test_a_pilot_decides_and_is_not_trained_on(tmp_path):
    run = sharing(tmp_path, type="gvm", mean_draws=4, pilot=3)
    metrics = train_step(run, 1)
    piloted = run.engine.submitted[:18]
    assert {draw.index for draw in piloted} == {0, 1, 2}
    solved = {d.key for d in piloted if run.engine.is_right(d)}
    main = run.engine.submitted[18:]
    assert 0 < len(solved) < 6
    assert {draw.key for draw in main} == solved
    assert not {draw.seed for draw in piloted} & {draw.seed for draw in main}
    counts = GVM(mean_draws=4, pilot=3).counts(
        [
            sum(run.engine.is_right(d) for d in piloted if d.key == key) / 3
            for key in dict.fromkeys(d.key for d in piloted)
        ]
    )
    assert sorted(Counter(draw.key for draw in main).values()) == sorted(counts[counts > 0])
    # The sampler learns of both; the draws of both are counted.
    assert sum(drawn for _, drawn in run.sampler.told.values()) == len(run.engine.submitted)
    assert metrics["draws"] == len(run.engine.submitted)
    assert metrics["prompts"] == len(solved)


def test_where_no_pilot_is_solved_nothing_is_learnt(tmp_path):
    run = sharing(tmp_path, type="gvm", mean_draws=4, pilot=3)
    run.engine.is_right = lambda draw: False
    metrics = train_step(run, 1)
    assert (metrics["draws"], metrics["trained_groups"]) == (18, 0)


def test_refilling_keeps_to_the_budget_of_the_step(tmp_path):
    run = refilling(tmp_path, refills=20)
    run.recipe = dataclasses.replace(run.recipe, total_draws=30)
    assert train_step(run, 1)["draws"] <= 30


def refilling(tmp_path, **group):
    """A run in which every other prompt has one right response in four, and the rest none."""
    settings = {"type": "fixed_count", "samples": 4}
    run = make_run(tmp_path, exit=settings, group={"zero_variance": "refill", **group})
    run.engine.is_right = lambda draw: mixed(draw.key) and draw.index == 0
    return run


def mixed(key):
    return TRAINED.index(key) % 2 == 0


def test_prompts_without_signal_are_made_up_for(tmp_path):
    run = refilling(tmp_path, refills=20)
    metrics = train_step(run, 1)
    assert metrics["trained_groups"] == min(6, sum(map(mixed, TRAINED)))
    [examples] = run.learner.learnt
    assert len(examples) == 4 * metrics["trained_groups"]
    # The sampler is told of all that were drawn, those without signal included, each once.
    assert len(run.sampler.told) == metrics["prompts"] >= 6
    assert all(drawn == 4 for _, drawn in run.sampler.told.values())


def test_refilling_ends_and_says_so(tmp_path, caplog):
    run = refilling(tmp_path, refills=1)
    asked = []
    ask = run.sampler.ask
    run.sampler.ask = lambda *a, **k: asked.append(ask(*a, **k)) or asked[-1]
    metrics = train_step(run, 1)
    first, second = asked
    assert len(second) == 6 - sum(map(mixed, first))
    assert not set(first) & set(second)
    missing = 6 - metrics["trained_groups"]
    if missing:
        assert f"step 1: {missing} groups are missing" in caplog.text


def test_refilling_ends_where_no_prompt_is_left(tmp_path, caplog):
    run = refilling(tmp_path, refills=1000)
    run.engine.is_right = lambda draw: False
    metrics = train_step(run, 1)
    assert metrics["prompts"] == len(TRAINED)
    assert metrics["trained_groups"] == 0
    assert "step 1: 6 groups are missing" in caplog.text


def test_failures_of_the_grader_are_counted_step_by_step(tmp_path):
    run = make_run(tmp_path)
    run.grader.failures = 100
    assert [train_step(run, step)["grader_failures"] for step in (1, 2)] == [2, 2]


class FailingGrader(FakeGrader):
    """Counts a failure a response."""

    def grade(self, responses, answers):
        self.failures += len(responses)
        return np.zeros(len(responses))


def test_a_step_of_which_all_failed_stops_the_run_unless_told_otherwise(tmp_path):
    run = make_run(tmp_path)
    run.grader = FailingGrader()
    with pytest.raises(RunError, match=r"grader failed on all 48 responses of step 1.*stop_if_all"):
        train_step(run, 1)
    assert not run.learner.learnt
    (tmp_path / "on").mkdir()
    going_on = make_run(tmp_path / "on", grading={"stop_if_all_fail": False})
    going_on.grader = FailingGrader()
    assert train_step(going_on, 1)["grader_failures"] == 48


def test_the_first_prompts_of_a_step_are_recorded_whole(tmp_path):
    run = make_run(tmp_path)
    train_step(run, 1)
    train_step(run, 2)
    run.folder.flush_samples()
    rows = run.folder.read_samples()
    asked = Uniform(TRAINED, 6, seed=3)
    expected = {(step, key) for step in (1, 2) for key in asked.ask()[:2]}
    assert {(row["step"], row["key"]) for row in rows} == expected
    for step, key in expected:
        own = [row for row in rows if (row["step"], row["key"]) == (step, key)]
        assert [row["reward"] for row in own] == expected_pool(key, step)
        assert {(row["question"], row["answer"]) for row in own} == {
            (f"question of {key}", f"answer to {key}")
        }


def test_every_draw_of_a_run_has_random_numbers_of_its_own(tmp_path):
    run = make_run(tmp_path)
    evaluate(run)
    for step in range(1, 6):
        train_step(run, step)
    seeds = [draw.seed for draw in run.engine.submitted]
    assert len(set(seeds)) == len(seeds) > 150


def test_an_evaluation_is_an_ordinary_sample_and_the_same_each_time(tmp_path):
    run = make_run(tmp_path)
    first, second = evaluate(run), evaluate(run)
    assert first == second
    rights = [[is_right(key, draw_seed(3, 0, key, i)) for i in range(4)] for key in HELDOUT]
    assert first.avg_at_k.value == pytest.approx(np.mean(rights))
    assert first.pass_at_k.value == pytest.approx(np.mean(np.any(rights, axis=1)))
    assert first.k == 4


# Whole runs of the built-in model.


class Observer:
    """Watches a run, and asks it to stop after a step."""

    def __init__(self, stop_after=None):
        self.seen, self.stop_after, self.stop_requested = [], stop_after, False

    def on_step(self, metrics):
        self.seen.append(metrics["step"])
        self.stop_requested |= metrics["step"] == self.stop_after


SETTINGS = {
    "steps": 4,
    "prompts": {"batch_size": 4},
    "data": {"problems": 32, "max_terms": 4},
    "schedule": {"size": 4, "rounds": 2},
    "engine": {"max_new_tokens": 16},
    "evaluation": {"every": 2, "problems": 4, "samples": 2},
}


def config_of(**changed):
    return make_config(SETTINGS, changed)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that was not interrupted."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "whole")
    assert train(start_run(config_of(), folder), Observer())
    return folder.path


def test_what_a_run_writes(whole, metrics_of):
    lines = metrics_of(whole)
    assert sum(line["trained_groups"] for line in lines[1:]) > 4
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["step"] for line in lines if "heldout" in line] == [0, 2, 4]
    assert all(line["heldout"].keys() == {"avg@2", "pass@2"} for line in lines[::2])
    assert [p.name for p in (whole / "checkpoints").iterdir()] == ["step-000004"]
    rows = RunFolder(whole).read_samples()
    assert {row["step"] for row in rows} == {1, 2, 3, 4}
    assert all(len({r["key"] for r in rows if r["step"] == step}) == 4 for step in range(1, 5))


def test_held_out_problems_can_be_left_to_the_ends(tmp_path, metrics_of):
    settings = SETTINGS["evaluation"] | {"every": 0}
    folder = RunFolder(tmp_path / "run")
    train(start_run(config_of(evaluation=settings), folder), Observer())
    assert [line["step"] for line in metrics_of(folder.path) if "heldout" in line] == [0, 4]


def test_checkpoints_are_written_when_due_and_old_ones_go(tmp_path, whole, state_of):
    folder = RunFolder(tmp_path / "run")
    config = config_of(checkpoint={"every": 1, "keep": 2})
    train(start_run(config, folder), Observer())
    assert sorted(p.name for p in folder.checkpoints.iterdir()) == ["step-000003", "step-000004"]
    assert state_of(folder.path) == state_of(whole)


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_a_run_that_was_stopped_resumes_to_the_same_end(tmp_path, whole, state_of, stop_after):
    """To the bit: weights, optimizer, sampler, random state, metrics and recorded responses."""
    folder = RunFolder(tmp_path / "run")
    observer = Observer(stop_after)
    assert not train(start_run(config_of(), folder), observer)
    assert observer.seen == [*range(stop_after + 1)]
    assert [p.name for p in folder.checkpoints.iterdir()] == [f"step-{stop_after:06d}"]

    rest = RunFolder(folder.path)
    observer = Observer()
    assert train(resume_run(config_of(), rest), observer)
    assert observer.seen == [*range(stop_after + 1, 5)]
    assert state_of(folder.path) == state_of(whole)
    assert rest.read_samples() == RunFolder(whole).read_samples()
    elapsed = [line["elapsed"] for line in rest.read_metrics()]
    assert elapsed == sorted(elapsed)


def test_a_run_that_died_resumes_from_its_last_checkpoint(tmp_path, whole, state_of):
    """What it had done since is done again, and counted once."""

    class Dying(Observer):
        def on_step(self, metrics):
            if metrics["step"] == 3:
                raise KeyboardInterrupt

    folder = RunFolder(tmp_path / "run")
    config = config_of(checkpoint={"every": 2})
    with pytest.raises(KeyboardInterrupt):
        train(start_run(config, folder), Dying())
    assert [line["step"] for line in folder.read_metrics()] == [0, 1, 2, 3]
    assert train(resume_run(config, RunFolder(folder.path)), Observer())
    assert state_of(folder.path) == state_of(whole)
    assert RunFolder(folder.path).read_samples() == RunFolder(whole).read_samples()


def dropping(entry):
    """What is drawn at this entry into `Run.droppable` is dropped, when it is all there."""
    entries = itertools.count(1)

    @contextmanager
    def droppable():
        yield
        if next(entries) == entry:
            observer.stop_requested = True
            raise Dropped

    observer = Observer()
    return droppable, observer


@pytest.mark.parametrize(
    ("entry", "seen"),
    [(2, [0]), (3, [0, 1]), (4, [0, 1, 2]), (6, [0, 1, 2, 3]), (7, [0, 1, 2, 3, 4])],
    ids=["step 1", "step 2", "evaluation of step 2", "step 4", "evaluation of step 4"],
)
def test_what_is_dropped_is_done_on_resuming(tmp_path, whole, state_of, entry, seen):
    """As SIGTERM drops it; the end is that of a run that was not interrupted."""
    folder = RunFolder(tmp_path / "run")
    run = start_run(config_of(), folder)
    run.droppable, observer = dropping(entry)
    assert not train(run, observer)
    assert observer.seen == seen
    assert [p.name for p in folder.checkpoints.iterdir()] == [f"step-{seen[-1]:06d}"]

    rest = RunFolder(folder.path)
    assert train(resume_run(config_of(), rest), Observer())
    assert state_of(folder.path) == state_of(whole)
    assert rest.read_samples() == RunFolder(whole).read_samples()
    elapsed = [line["elapsed"] for line in rest.read_metrics()]
    assert elapsed == sorted(elapsed)


def test_where_nothing_is_done_nothing_is_saved(tmp_path):
    folder = RunFolder(tmp_path / "run")
    run = start_run(config_of(), folder)
    run.droppable, observer = dropping(entry=1)
    with pytest.raises(Dropped):
        train(run, observer)
    assert not folder.checkpoints.exists()


def test_a_run_asked_to_stop_while_it_saves_stops_there(tmp_path, monkeypatch):
    observer = Observer()

    def save_and_interrupt(folder, keep):
        observer.stop_requested = True

    monkeypatch.setattr("rollwise.training.loop.prune_checkpoints", save_and_interrupt)
    folder = RunFolder(tmp_path / "run")
    assert not train(start_run(config_of(checkpoint={"every": 2}), folder), observer)
    assert observer.seen == [0, 1, 2]
    assert [p.name for p in folder.checkpoints.iterdir()] == ["step-000002"]


def test_a_finished_run_is_left_as_it_is(tmp_path, state_of):
    folder = RunFolder(tmp_path / "run")
    train(start_run(config_of(steps=2), folder), Observer())
    before = state_of(folder.path)
    observer = Observer()
    assert train(resume_run(config_of(steps=2), RunFolder(folder.path)), observer)
    assert observer.seen == []
    assert state_of(folder.path) == before


def test_a_run_cannot_end_before_what_it_has_done(tmp_path, state_of):
    folder = RunFolder(tmp_path / "run")
    train(start_run(config_of(), folder), Observer(stop_after=3))
    before = state_of(folder.path), folder.read_config()
    with pytest.raises(ConfigError, match=r"`steps` must be at least 3, .* has done 3; it is 2"):
        resume_run(config_of(steps=2), RunFolder(folder.path))
    assert (state_of(folder.path), folder.read_config()) == before


def test_a_run_ends_once_its_tokens_are_spent(tmp_path, whole, metrics_of, state_of):
    """It is as long as the run of as many steps, and so it is after an interruption."""
    lines = metrics_of(whole)
    tokens = sum(line["tokens"] for line in lines[1:3]) + 1
    config = config_of(steps=1000, tokens=tokens)
    folder = RunFolder(tmp_path / "run")
    assert not train(start_run(config, folder), Observer(stop_after=1))
    run = resume_run(config, RunFolder(folder.path))
    assert run.expected_steps > 1
    assert train(run, Observer())
    found = metrics_of(folder.path)
    assert [line["step"] for line in found] == [0, 1, 2, 3]
    assert "heldout" in found[-1]
    assert [line["tokens"] for line in found[1:]] == [line["tokens"] for line in lines[1:4]]
    assert resume_run(config, RunFolder(folder.path)).ended


def test_a_run_ends_once_its_seconds_are_spent(tmp_path, metrics_of):
    config = config_of(steps=1000, seconds=1e-9)
    assert train(start_run(config, RunFolder(tmp_path / "run")), Observer())
    assert [line["step"] for line in metrics_of(tmp_path / "run")] == [0, 1]


def test_evaluations_can_be_due_by_tokens(tmp_path, whole, metrics_of):
    """Where as many tokens as half a run has are passed, and at its end."""
    spent = np.cumsum([line["tokens"] for line in metrics_of(whole)[1:]])
    every = int(spent[-1]) // 2
    settings = SETTINGS["evaluation"] | {"every": 0, "every_tokens": every}
    train(start_run(config_of(evaluation=settings), RunFolder(tmp_path / "run")), Observer())
    evaluated = [line["step"] for line in metrics_of(tmp_path / "run") if "heldout" in line]
    assert evaluated == sorted({0, int(np.searchsorted(spent, every)) + 1, 4})


@pytest.mark.parametrize("end", [{"steps": 3}, {"tokens": 1}])
def test_a_run_that_ends_where_it_stopped_is_evaluated_there(tmp_path, metrics_of, end):
    """Its figures "after" would otherwise be those of an earlier step; every second has them."""
    folder, short = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "short")
    train(start_run(config_of(), folder), Observer(stop_after=3))
    assert train(resume_run(config_of(**end), RunFolder(folder.path)), Observer())
    train(start_run(config_of(steps=3), short), Observer())
    assert metrics_of(folder.path) == metrics_of(short.path)


def test_the_seed_names_the_run(tmp_path, whole, state_of):
    again, other = RunFolder(tmp_path / "again"), RunFolder(tmp_path / "other")
    torch.manual_seed(12345)  # whatever was drawn before
    train(start_run(config_of(), again), Observer())
    train(start_run(config_of(seed=1), other), Observer())
    assert state_of(again.path) == state_of(whole)
    assert state_of(other.path)["metrics"][1:] != state_of(whole)["metrics"][1:]


def test_the_copy_in_bfloat16_keeps_its_positions(make_model):
    """Rotary frequencies stay in single precision; weights that are tied stay tied."""
    model = make_model(tie_word_embeddings=True)
    copied = in_bfloat16(copy.deepcopy(model))
    assert {p.dtype for p in copied.parameters()} == {torch.bfloat16}
    assert not any(p.requires_grad for p in copied.parameters())
    assert copied.lm_head.weight is copied.model.embed_tokens.weight
    frequencies = copied.model.rotary_emb.inv_freq
    assert frequencies.dtype == torch.float32
    assert torch.equal(frequencies, model.model.rotary_emb.inv_freq)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_an_engine_with_a_copy_of_the_weights_follows_the_learner(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "rollwise.training.local.for_sampling", lambda model: in_bfloat16(copy.deepcopy(model))
    )
    run = start_run(config_of(), RunFolder(tmp_path / "run"))
    before = [p.clone() for p in run.engine.model.parameters()]
    assert train(run, Observer())
    after = list(run.engine.model.parameters())
    for own, learnt in zip(after, run.learner.model.parameters(), strict=True):
        assert torch.equal(own, learnt.to(torch.bfloat16))
    assert not all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    # Rounding sets the two apart by about 2⁻⁸ of a few nats.
    assert all(1e-5 < line["sampler_gap"] < 0.1 for line in run.folder.read_metrics()[1:])


def test_the_engine_sleeps_while_the_learner_learns(tmp_path):
    run = make_run(tmp_path, steps=2, backend={"type": "tinker"})
    done, engine, learner = [], run.engine, run.learner
    engine.sleep = lambda: done.append("sleep")
    learner.save, learner.updates = lambda folder: None, 0
    run.tokenizer = SimpleNamespace(save_pretrained=lambda folder: None)

    def noting(name, function):
        return lambda *given: (done.append(name), function(*given))[1]

    learner.learn = noting("learn", learner.learn)
    engine.submit = noting("draw", engine.submit)
    engine.load_weights = noting("load", engine.load_weights)
    assert train(run, SimpleNamespace(stop_requested=False, on_step=lambda metrics: None))
    places = [i for i, what in enumerate(done) if what == "learn"]
    assert [done[i - 1 : i + 2] for i in places] == [["sleep", "learn", "load"]] * 2
    assert done.count("sleep") == 2
