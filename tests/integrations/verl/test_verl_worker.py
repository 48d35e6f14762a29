"""A worker of verl's samples one prompt, against an agent loop written by hand."""

import asyncio
import copy
import json
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("verl")

from omegaconf import OmegaConf

from rollwise.config.step import step_recipe
from rollwise.integrations.verl import agent_loop
from rollwise.integrations.verl.agent_loop import SessionWorker
from rollwise.integrations.verl.reports import Order, PromptReport
from rollwise.integrations.verl.settings import train_config
from rollwise.sampling import advantages, draw_seed, select_group

pytestmark = pytest.mark.verl

SETTINGS = {
    "method": "reinforce_ada",
    "exit": {"type": "balanced", "positives": 2, "negatives": 2},
    "schedule": {"type": "rounds", "size": 4, "rounds": 3},
    "group": {"size": 4},
    "seed": 5,
}
STREAMED = {"type": "streamed", "max_samples": 12}
ONE_ROUND = {"exit": {"type": "fixed_count", "samples": 4}, "schedule": {"size": 4, "rounds": 1}}


def row(*turns, first=1, last=1, **changed):
    """A row of an agent loop: turns of the model (positive) and the environment (negative)."""
    mask = [int(turn > 0) for turn in turns for _ in range(abs(turn))]
    fields = {
        "prompt_ids": [9],
        "response_ids": list(range(2, 2 + len(mask))),
        "response_mask": mask,
        "response_logprobs": [-0.5 * own for own in mask],
        "reward_score": None,
        "extra_fields": {"min_global_steps": first, "max_global_steps": last},
    }
    return SimpleNamespace(**fields | changed)


class Loop:
    """verl's own worker, with responses by rule: the draw with a seed divisible by 3 is correct.

    Attributes:
        outputs: The rows of each draw; by default one of 1, 2 or 3 tokens, by the draw's index.
        graded: Whether it is correct -> its score, and its accuracy if that is another.
        errors: What each attempt at a draw raises, by the draw's index.
    """

    def __init__(self, config):
        self.config = config
        decode = lambda tokens, **options: " ".join(map(str, tokens))  # noqa: E731
        self.tokenizer = SimpleNamespace(decode=decode, eos_token_id=1)
        self.stored, self.params, self.last_turns = [], [], []
        self.outputs, self.errors = None, {}
        self.graded = lambda correct: (float(correct), None)

    async def _run_agent_loop(self, params, trajectory, *, trace, **fields):
        self.params.append(params)
        index = fields["session_id"]
        await asyncio.sleep(0)
        if self.errors.get(index):
            raise self.errors[index].pop()
        tokens = [7] * (index % 3) + [1]
        rows = row(len(tokens), response_ids=tokens) if self.outputs is None else self.outputs
        rows = copy.deepcopy(rows(index) if callable(rows) else rows)
        for each in rows if isinstance(rows, list) else [rows]:
            each.correct = params.get("seed", 0) % 3 == 0
        return await self._agent_loop_postprocess(rows, trajectory["validate"], **fields)

    async def _compute_score(self, outputs, kwargs):
        start, stop = outputs[-1].extra_fields["rollwise_last_turn"]
        self.last_turns.append(outputs[-1].response_ids[start:stop])
        outputs[-1].reward_score, accuracy = self.graded(outputs[-1].correct)
        info = {} if accuracy is None else {"acc": accuracy}
        outputs[-1].extra_fields["reward_extra_info"] = info

    async def _agent_loop_postprocess(self, outputs, validate, **fields):
        assert not validate
        self.stored.append((fields["uid"], fields["session_id"], outputs[-1].reward_score))


class Worker(SessionWorker, Loop):
    pass


def make_worker(engine="cpu", loop=(), **changed):
    rollout = {"name": engine, "response_length": 8}
    settings = {**SETTINGS, **changed}
    config = {"actor_rollout_ref": {"rollout": rollout}, "rollwise": {"settings": settings}}
    worker = Worker(OmegaConf.create(config))
    vars(worker).update(loop)
    return worker


@pytest.fixture
def sample(monkeypatch):
    """Runs one prompt through a worker; returns its report, or its tag if it failed."""
    tags = []

    async def put(key, partition_id, tag):
        tags.append((partition_id, key, tag))

    monkeypatch.setattr(agent_loop, "tq", SimpleNamespace(async_kv_put=put))

    def run(worker, **order):
        prompt = {
            "uid": "u",
            "rollwise": asdict(Order("p", 3, **order)),
            "raw_prompt": [{"content": "1+1?"}],
            "reward_model": {"ground_truth": "2"},
            "agent_name": "single_turn_agent",
        }
        trajectory = {"validate": False, "step": 3}
        asyncio.run(worker._run_prompt(prompt, {"temperature": 1.0}, trajectory))
        partition, uid, tag = tags[-1]
        assert (partition, uid) == ("train", "u")
        return PromptReport(**tag["rollwise"]) if tag["status"] == "finished" else tag

    return run


def learnt(report):
    """The advantage of each of its draws that is trained on."""
    return report.by_draw(report.group(0.7))


@pytest.mark.parametrize("schedule", [SETTINGS["schedule"], STREAMED], ids=str)
def test_pool_group_and_advantages_are_the_cores(sample, schedule):
    recipe = step_recipe(train_config(SETTINGS | {"schedule": schedule}))
    session = recipe.session(["p"], 3)
    while draws := session.next_draws():
        for draw in draws:
            session.record(draw, float(draw.seed % 3 == 0), draw)
    pool = session.pools["p"]
    group, worker = select_group(pool, 4), make_worker(schedule=schedule)
    report = sample(worker)
    assert (report.key, report.rewards) == ("p", pool.rewards.tolist())
    assert report.exit_reason == pool.exit_reason == "satisfied"
    assert report.members == group.indices.tolist()
    values = advantages(pool, group).tolist()
    assert learnt(report) == dict(zip(report.members, values, strict=True))
    assert worker.stored == [("u", i, pool.rewards[i]) for i in group.indices]
    # The first four draws have 1, 2, 3 and 1 tokens of surprisal one half.
    numbers = [figures[:5] for figures in report.figures[:4]]
    assert numbers == [[n, n / 2, False, 1, n] for n in (1, 2, 3, 1)]
    assert report.figures[2][5] == pytest.approx((1 - np.exp(-0.5)) * np.sqrt(3))


def test_every_draw_has_a_seed_of_its_own_where_the_engine_takes_one(sample):
    worker, loop = make_worker(), {"outputs": row(2, response_logprobs=None)}
    unseeded = make_worker("sglang", loop)
    report = sample(worker)
    seeds = [draw_seed(5, 3, "p", index) for index in range(len(report.rewards))]
    assert [params["seed"] for params in worker.params] == seeds
    found = sample(unseeded).figures
    assert all(np.isnan(figures[1]) and np.isnan(figures[5]) for figures in found)  # not invented
    assert all("seed" not in params for params in unseeded.params)


def wrong(correct):
    return 0.0, None


def test_the_rule_looks_at_correctness_and_the_advantage_at_the_score(sample):
    """A length bonus of 0.25 must not make a wrong response correct, nor go lost."""
    plain = sample(make_worker())
    shaped = sample(make_worker(loop={"graded": lambda c: (c - 0.5, float(c))}))
    accs = [reward["acc"] for reward in shaped.rewards]
    assert (accs, shaped.members) == (plain.rewards, plain.members)
    # r − mean does not change by a constant shift of all rewards.
    assert learnt(shaped) == pytest.approx(learnt(plain))
    halved = sample(make_worker(loop={"graded": lambda c: (c * 0.5, float(c))}))
    assert learnt(halved) == pytest.approx({i: a / 2 for i, a in learnt(plain).items()})
    linear = {"advantage": {"objective": "linear"}}
    halved = make_worker(loop={"graded": lambda c: (c * 0.5, float(c))}, **linear)
    assert learnt(sample(halved)) == learnt(sample(make_worker(**linear)))


def test_what_the_sampler_believes_reaches_the_worker(sample):
    give_up = {"exit": {"give_up_below": 0.5}}
    hopeless = sample(make_worker(loop={"graded": wrong}, **give_up), prior=[1.0, 60.0])
    assert (hopeless.exit_reason, hopeless.rewards) == ("futile", [0.0] * 4)


def test_responses_are_recorded_where_they_are_asked_for(sample):
    assert sample(make_worker()).records == []
    report = sample(make_worker(), recorded=True)
    assert PromptReport(**json.loads(json.dumps(asdict(report)))) == report
    assert [each["index"] for each in report.records] == list(range(len(report.rewards)))
    first = report.records[2]
    assert (first["question"], first["answer"], first["response"]) == ("1+1?", "2", "7 7 1")
    worker = make_worker(loop={"outputs": [row(2, -1, 1), row(1)]}, **ONE_ROUND)
    [first, *_] = sample(worker, recorded=True).records
    assert (first["response"], first["turns"], first["tokens"]) == ("2 3\n4\n5\n2", 3, 4)


@pytest.mark.parametrize("kind", [ConnectionError, asyncio.CancelledError])
def test_a_draw_that_fails_is_logged_drawn_again_and_at_last_given_up(sample, caplog, kind):
    whole = sample(make_worker(**ONE_ROUND))
    again = sample(
        make_worker(loop={"errors": {1: [kind("gone")], 2: [kind("gone")] * 2}}, **ONE_ROUND)
    )
    assert (again.failures, again.lost, again.rewards) == (3, 0, whole.rewards)
    assert f"failed: {kind.__name__}('gone')" in caplog.text
    lost = sample(make_worker(loop={"errors": {1: [kind()] * 3}}, **ONE_ROUND))
    assert (lost.failures, lost.lost, lost.indices) == (3, 1, [0, 2, 3])


def test_a_prompt_without_signal_has_no_advantage_and_one_without_responses_fails(sample):
    report = sample(make_worker(loop={"graded": wrong}))
    assert (report.dropped, report.exit_reason, len(report.rewards)) == (True, "exhausted", 12)
    assert learnt(report) == dict.fromkeys(range(4), 0.0)
    worker = make_worker(loop={"errors": {i: [OSError()] * 3 for i in range(12)}})
    assert sample(worker) == {"status": "failure"}
    assert worker.stored == []


# Agent loops of several turns, and those that users write.


@pytest.mark.parametrize(
    ("outputs", "figures"),
    [
        (row(3, -2, 2, first=1, last=4), [5, 2.5, False, 2, 5]),
        ([row(2, -1), row(4, first=2, last=3)], [6, 3.0, False, 2, 6]),
    ],
    ids=["several turns", "several rows"],
)
def test_a_response_is_one_draw_with_its_price(sample, outputs, figures):
    """What a tool says is not drawn; a loop that compacts its context has a row for each part."""
    worker = make_worker(loop={"outputs": outputs}, **ONE_ROUND, group={"zero_variance": "keep"})
    report = sample(worker)
    assert (len(report.rewards), report.tokens) == (4, 4 * figures[0])
    assert [found[:5] for found in report.figures] == [figures] * 4
    assert report.weights == [1] * 4
    assert {found[6] for found in report.figures} == {"done"}
    assert [draw for _, draw, _ in worker.stored] == [0, 1, 2, 3]


@pytest.mark.parametrize("turns", [(3, -2, 2), (3, -2, 2, -4), (-5, 2)])
def test_the_last_turn_is_what_is_graded(sample, turns):
    worker = make_worker(loop={"outputs": row(*turns)}, **ONE_ROUND)
    sample(worker)
    assert worker.last_turns == [[7, 8]] * 4


@pytest.mark.parametrize(
    ("outputs", "mode", "reason"),
    [
        ([], "sync", "no response"),
        (row(2, response_mask=[1]), "sync", "of another length than its tokens"),
        (row(-2), "sync", "the model drew no token"),
        (row(2, response_logprobs=None), "colocate_async", "no response_logprobs"),
        (row(2, extra_fields={}), "sync", "no min_global_steps"),
        (None, "sync", "gave the response a reward"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_an_agent_loop_leaves_unknown_is_refused(sample, caplog, outputs, mode, reason):
    loop = {"outputs": outputs, "mode": mode, "graded": lambda correct: (None, None)}
    assert sample(make_worker(loop=loop))["status"] == "failure"
    assert reason in caplog.text


@pytest.mark.parametrize(("mode", "drawn"), [("sync", 12), ("colocate_async", 4)])
def test_a_prompt_whose_oldest_response_is_too_old_ends_with_what_it_has(sample, mode, drawn):
    """The weights are updated twice while the first round is drawn, which is as many as may be."""

    def outputs(index):
        newest = 3 if index >= 3 else 1
        return row(2, first=newest, last=newest)

    loop = {"outputs": outputs, "graded": wrong, "mode": mode, "most_off_policy": 2}
    report = sample(make_worker(loop=loop))
    assert (len(report.rewards), report.exit_reason) == (drawn, "exhausted")
    assert report.weights[:4] == [1, 1, 1, 3]
