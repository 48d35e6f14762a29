"""A step of a run taken apart with fakes: sampling, grading, learning, and what is recorded."""

import asyncio
import random
from collections import Counter
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from rollwise.config import make_config
from rollwise.engines import Engine
from rollwise.errors import EngineError, RunError
from rollwise.grading import Grader
from rollwise.prompts import Uniform
from rollwise.records import RunFolder, Trackers
from rollwise.sampling import GVM
from rollwise.sampling.draws import draw_seed
from rollwise.step import Response, draw_rollouts
from rollwise.training.loop import draw, evaluate, learn, train
from rollwise.training.run import Run

TRAINED = [f"train {i}" for i in range(10)]
HELDOUT = [f"held out {i}" for i in range(5)]
LUCK = {key: (i % 5) / 4 for i, key in enumerate([*TRAINED, *HELDOUT])}


def train_step(run, step):
    return learn(run, draw(run, step))


def is_right(key, seed):
    return random.Random(seed).random() < LUCK[key]


class FakeEngine(Engine):
    """Draws a response at once, right or wrong by the draw's seed."""

    def __init__(self):
        self.drawn, self.weights = [], []
        self.is_right = lambda draw: is_right(draw.key, draw.seed)

    async def complete(self, draw, prompt):
        assert prompt
        self.drawn.append(draw)
        return Response([draw.index, 1], np.zeros(2, np.float32), str(self.is_right(draw)))

    def load_weights(self, weights):
        self.weights.append(weights)


class FakeGrader(Grader):
    """Reads the reward from the response."""

    failures_a_response = 0

    async def reward(self, response, answer):
        self.failures += self.failures_a_response
        return float(response == "True")


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
            "method": "reinforce_ada",
            "seed": 3,
            "prompts": {"batch_size": 6},
            "evaluation": {"samples": 4},
            "records": {"prompts_per_step": 2},
            "schedule": {"type": "rounds", "size": 4, "rounds": 2},
        },
        settings,
    )
    folder = RunFolder(tmp_path / "run")
    folder.create(asdict(config))
    keys = [*TRAINED, *HELDOUT]
    return Run(
        config=config,
        folder=folder,
        trackers=Trackers(),
        sampler=Listening(TRAINED, config.prompts.batch_size, config.seed),
        engine=FakeEngine(),
        grader=FakeGrader(),
        learner=FakeLearner(),
        tokenizer=SimpleNamespace(decode=lambda tokens, skip_special_tokens: ""),
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
    assert sorted(example.prompt for example in examples) == sorted(
        run.prompts[key] for key in mixed for _ in range(4)
    )
    for example in examples:
        place, pool = example.response.tokens[0], mixed[TRAINED[example.prompt[0]]]
        assert example.advantage == pytest.approx(pool[place] - np.mean(pool))
    # The engine got the weights that came of it.
    assert run.engine.weights == [1]

    assert metrics["step"] == 5
    assert metrics["draws"] == sum(map(len, pools.values()))
    assert metrics["trained_groups"] == len(mixed)
    assert metrics["loss"] == 0.25
    assert metrics["epoch"] == pytest.approx(0.6)
    assert set(metrics["seconds"]) == {"sampling", "grading", "learning"}

    run.folder.flush_samples()
    rows = run.folder.samples.read().to_pylist()  # of the first two prompts, whole
    assert [row["key"] for row in rows] == [key for key in asked[:2] for _ in pools[key]]
    assert [row["reward"] for row in rows] == [r for key in asked[:2] for r in pools[key]]
    assert all(row["question"] == f"question of {row['key']}" for row in rows)


def test_mini_batches_mix_the_prompts_of_a_step_the_same_way_each_time(tmp_path):
    def orders(name, **settings):
        run = make_run(tmp_path / name, method="grpo", **settings)
        step = draw(run, 1)
        for number in (1, 1, 2):
            step.metrics["step"] = number
            learn(run, step)
        return [
            [(e.prompt[0], e.response.tokens[0]) for e in examples]
            for examples in run.learner.learnt
        ]

    first, again, next_step = orders("one")
    assert sorted(first) == sorted(next_step) and first == again != next_step
    prompts = [prompt for prompt, _ in first[::4]]
    assert [prompt for prompt, _ in first] == np.repeat(prompts, 4).tolist()
    assert orders("other", seed=4)[0] != first


def test_what_the_sampler_believes_reaches_a_streamed_session(tmp_path):
    run = make_run(tmp_path, schedule={"type": "streamed"}, exit={"give_up_below": 0.2})
    run.engine.slots = 24
    run.sampler.tell(TRAINED, correct=[0] * len(TRAINED), drawn=[6] * len(TRAINED))
    session = draw_rollouts(run.recipe, run.sampler, run.roll_out, 1).session
    # Beta(1 + 0, 1 + 6), rounded to a strength of 8 and a mean of 4/32.
    assert {pool.stopping.prior for pool in session.pools.values()} == {(1.0, 7.0)}
    assert "futile" in {pool.exit_reason for pool in session.pools.values()}
    assert session.done


SHARED_OUT = {"size": 32, "rounds": 1}


def test_a_pilot_decides_and_is_not_trained_on(tmp_path):
    allocation = {"type": "gvm", "mean_draws": 4, "pilot": 3}
    run = make_run(tmp_path, method="gvm", allocation=allocation, schedule=SHARED_OUT)
    metrics = train_step(run, 1)
    piloted = run.engine.drawn[:18]
    assert {draw.index for draw in piloted} == {0, 1, 2}
    solved = {d.key for d in piloted if run.engine.is_right(d)}
    main = run.engine.drawn[18:]
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
    assert sum(drawn for _, drawn in run.sampler.told.values()) == len(run.engine.drawn)
    assert metrics["draws"] == len(run.engine.drawn)
    assert metrics["prompts"] == len(solved)
    # Where no pilot is solved, nothing is drawn beyond the pilots.
    run.engine.is_right = lambda draw: False
    metrics = train_step(run, 2)
    assert (metrics["draws"], metrics["trained_groups"]) == (18, 0)
    changed = {"schedule": SHARED_OUT, "advantage": {"objective": "linear", "baseline": "belief"}}
    run = make_run(tmp_path / "believed", method="gvm", allocation=allocation, **changed)
    run.engine.is_right = lambda draw: False
    assert train_step(run, 1)["draws"] == 18


def refilling(tmp_path, **group):
    """A run in which every other prompt has one right response in four, and the rest none."""
    run = make_run(tmp_path, method="grpo", group={"zero_variance": "refill", **group})
    run.engine.is_right = lambda draw: mixed(draw.key) and draw.index == 0
    return run


def mixed(key):
    return TRAINED.index(key) % 2 == 0


def test_prompts_without_signal_are_made_up_for(tmp_path):
    run = refilling(tmp_path, refills=20)
    metrics = train_step(run, 1)
    assert metrics["trained_groups"] == min(6, sum(map(mixed, TRAINED)))
    # The sampler is told of all that were drawn, those without signal included, each once.
    assert len(run.sampler.told) == metrics["prompts"] >= 6
    assert all(drawn == 4 for _, drawn in run.sampler.told.values())


def test_refilling_ends(tmp_path):
    run = refilling(tmp_path, refills=1)
    asked = []
    ask = run.sampler.ask
    run.sampler.ask = lambda *a, **k: asked.append(ask(*a, **k)) or asked[-1]
    metrics = train_step(run, 1)
    first, second = asked
    assert len(second) == 6 - sum(map(mixed, first))
    assert not set(first) & set(second)
    assert metrics["trained_groups"] < 6


def test_a_step_of_which_all_failed_stops_the_run(tmp_path):
    run = make_run(tmp_path)
    run.grader.failures_a_response = 1
    with pytest.raises(RunError, match=r"grader failed on all 48 responses of step 1"):
        train_step(run, 1)
    assert not run.learner.learnt


def test_a_grader_that_hangs_ends_the_run(tmp_path):
    run = make_run(tmp_path, stall_limit=0.05)
    run.grader.reward = lambda response, answer: asyncio.Event().wait()
    with pytest.raises(EngineError, match=r"0.05 s \(`stall_limit`\): .* or the grader hangs"):
        train_step(run, 1)


def test_an_evaluation_is_an_ordinary_sample_and_the_same_each_time(tmp_path):
    run = make_run(tmp_path)
    first, run.step = evaluate(run), 1
    assert first == evaluate(run)
    rights = [[is_right(key, draw_seed(3, 0, key, i)) for i in range(4)] for key in HELDOUT]
    assert first["avg@4"]["value"] == pytest.approx(np.mean(rights))
    assert first["pass@4"]["value"] == pytest.approx(np.mean(np.any(rights, axis=1)))


def test_the_engine_sleeps_while_the_learner_learns(tmp_path):
    run = make_run(tmp_path, steps=2, backend={"type": "tinker"})
    done, engine, learner = [], run.engine, run.learner
    engine.sleep = lambda: done.append("sleep")
    learner.save, learner.updates = lambda folder: None, 0
    run.tokenizer.save_pretrained = lambda folder: None

    def noting(name, function):
        return lambda *given: (done.append(name), function(*given))[1]

    learner.learn = noting("learn", learner.learn)
    engine.complete = noting("draw", engine.complete)
    engine.load_weights = noting("load", engine.load_weights)
    assert train(run, SimpleNamespace(stop_requested=False, on_step=lambda metrics: None))
    places = [i for i, what in enumerate(done) if what == "learn"]
    assert [done[i - 1 : i + 2] for i in places] == [["sleep", "learn", "load"]] * 2
    assert done.count("sleep") == 2
