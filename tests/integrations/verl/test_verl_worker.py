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
from rollwise.integrations.verl import agent_loop, client
from rollwise.integrations.verl.agent_loop import SessionWorker
from rollwise.integrations.verl.reports import Order, PromptReport, session_of
from rollwise.integrations.verl.settings import train_config
from rollwise.sampling import advantages, draw_seed, select_group

pytestmark = pytest.mark.verl

SETTINGS = {
    "exit": {"type": "balanced", "positives": 2, "negatives": 2},
    "schedule": {"type": "rounds", "size": 4, "rounds": 3},
    "group": {"size": 4},
    "seed": 5,
}


class Queue:
    """TransferQueue, as far as a worker uses it."""

    def __init__(self):
        self.tags = {}

    async def async_kv_put(self, key, partition_id, tag):
        self.tags.setdefault((partition_id, key), {}).update(tag)


class Loop:
    """verl's own worker, with responses by rule: the draw with a seed divisible by 3 is correct."""

    def __init__(self, config, graded=lambda correct: (float(correct), None)):
        self.config, self.graded = config, graded
        self.tokenizer = SimpleNamespace(
            decode=lambda tokens, **options: " ".join(map(str, tokens)), eos_token_id=1
        )
        self.stored, self.params, self.validated, self.broken = [], [], [], set()

    async def _run_agent_loop(self, params, trajectory, *, trace, **fields):
        self.params.append(params)
        await asyncio.sleep(0)
        if fields["session_id"] in self.broken:
            raise ConnectionError("no engine")
        tokens = [7] * (fields["session_id"] % 3) + [1]
        output = SimpleNamespace(
            prompt_ids=[9],
            response_ids=tokens,
            response_mask=[1] * len(tokens),
            response_logprobs=[-0.5] * len(tokens),
            reward_score=None,
            extra_fields={"min_global_steps": 1, "max_global_steps": 1},
        )
        output.correct = params.get("seed", 0) % 3 == 0
        return await self._agent_loop_postprocess(output, trajectory["validate"], **fields)

    async def _compute_score(self, outputs, kwargs):
        score, accuracy = self.graded(outputs[-1].correct)
        outputs[-1].reward_score = score
        info = {} if accuracy is None else {"acc": accuracy}
        outputs[-1].extra_fields["reward_extra_info"] = info

    async def _agent_loop_postprocess(self, outputs, validate, **fields):
        assert not validate
        self.stored.append((fields["uid"], fields["session_id"], outputs[-1].reward_score))

    async def _run_prompt(self, prompt, sampling_params, trajectory, trace):
        self.validated.append(prompt)


class Worker(SessionWorker, Loop):
    pass


@pytest.fixture
def queue(monkeypatch):
    queue = Queue()
    monkeypatch.setattr(agent_loop, "tq", queue)
    return queue


def recipe_of(**changed):
    return step_recipe(train_config({**SETTINGS, **changed}))


def make_worker(engine="cpu", graded=lambda correct: (float(correct), None), **changed):
    rollout = {"name": engine, "response_length": 8}
    settings = {**SETTINGS, **changed}
    config = {"actor_rollout_ref": {"rollout": rollout}, "rollwise": {"settings": settings}}
    return Worker(OmegaConf.create(config), graded)


def sample(worker, queue, order=None, step=3):
    """Run one prompt through a worker; returns what it told the driver."""
    prompt = {
        "uid": "u",
        "rollwise": asdict(order or Order("p", step)),
        "raw_prompt": [{"content": "1+1?"}],
        "reward_model": {"ground_truth": "2"},
        "agent_name": "single_turn_agent",
    }
    asyncio.run(worker._run_prompt(prompt, {"temperature": 1.0}, {"validate": False, "step": step}))
    tag = queue.tags["train", "u"]
    return PromptReport(**tag["rollwise"]) if tag["status"] == "finished" else tag


def pool_of(recipe, report):
    """The prompt's pool, as the driver rebuilds it."""
    return session_of(recipe, [report]).pools["p"]


def learnt(report, **changed):
    """The advantage of each of its draws that is trained on, as the driver computes it alone."""
    recipe = recipe_of(**changed)
    pool = pool_of(recipe, report)
    return report.advantages(report.group(recipe, pool))


def expected_pool(changed=None, step=3):
    """The pool that the session of the core draws by the same rule."""
    session = recipe_of(**(changed or {})).session(["p"], step)
    while draws := session.next_draws():
        for draw in draws:
            session.record(draw, float(draw.seed % 3 == 0), draw)
    return session.pools["p"]


@pytest.mark.parametrize(
    "schedule",
    [SETTINGS["schedule"], {"type": "streamed", "max_samples": 12}],
    ids=lambda s: str(s),
)
def test_pool_group_and_advantages_are_the_cores(queue, schedule):
    worker, pool = make_worker(schedule=schedule), expected_pool({"schedule": schedule})
    group = select_group(pool, 4)
    report = sample(worker, queue)
    assert (report.key, report.rewards) == ("p", pool.rewards.tolist())
    assert report.exit_reason == pool.exit_reason == "satisfied"
    assert report.members == group.indices.tolist()
    values = advantages(pool, group).tolist()
    assert learnt(report) == dict(zip(report.members, values, strict=True))
    rewards = pool.rewards
    assert worker.stored == [("u", i, rewards[i]) for i in group.indices]
    # The first four draws have 1, 2, 3 and 1 tokens of surprisal one half.
    assert [figures[:5] for figures in report.figures[:4]] == [
        [1, 0.5, False, 1, 1],
        [2, 1.0, False, 1, 2],
        [3, 1.5, False, 1, 3],
        [1, 0.5, False, 1, 1],
    ]
    improbable = 1 - np.exp(-0.5)
    assert report.figures[2][5] == pytest.approx(improbable * np.sqrt(3))


def test_every_draw_has_a_seed_of_its_own_where_the_engine_takes_one(queue):
    worker = make_worker()
    report = sample(worker, queue)
    seeds = [draw_seed(5, 3, "p", index) for index in range(len(report.rewards))]
    assert [params["seed"] for params in worker.params] == seeds
    unseeded = make_worker("sglang")
    sample(unseeded, queue)
    assert all("seed" not in params for params in unseeded.params)


def test_a_prompt_without_signal_is_reported_and_its_rows_have_no_advantage(queue):
    worker = make_worker(graded=lambda correct: (0.0, None))
    report = sample(worker, queue)
    assert (report.dropped, report.exit_reason, len(report.rewards)) == (True, "exhausted", 12)
    assert learnt(report) == dict.fromkeys(range(4), 0.0)


def test_the_rule_looks_at_correctness_and_the_advantage_at_the_score(queue):
    """A length bonus of 0.25 must not make a wrong response correct, nor go lost."""
    plain = sample(make_worker(), queue)
    shaped = sample(make_worker(graded=lambda c: (c - 0.5, float(c))), queue)
    assert (shaped.rewards, shaped.members) == (plain.rewards, plain.members)
    # r − mean does not change by a constant shift of all rewards.
    assert learnt(shaped) == pytest.approx(learnt(plain))
    halved = sample(make_worker(graded=lambda c: (c * 0.5, float(c))), queue)
    assert learnt(halved) == pytest.approx({i: a / 2 for i, a in learnt(plain).items()})
    linear = {"advantage": {"objective": "linear"}}
    assert learnt(halved, **linear) == learnt(plain, **linear)


def test_what_the_sampler_believes_reaches_the_worker_and_comes_back(queue):
    give_up = {"exit": {"give_up_below": 0.5}}
    worker = make_worker(graded=lambda correct: (0.0, None), **give_up)
    hopeless = sample(worker, queue, Order("p", 3, prior=[1.0, 60.0]))
    assert (hopeless.exit_reason, len(hopeless.rewards)) == ("futile", 4)
    pool = pool_of(recipe_of(**give_up), hopeless)
    assert pool.prior == (1.0, 60.0)
    assert pool.stopping.prior != (1.0, 1.0)
    assert (pool.exit_reason, pool.rewards.tolist()) == ("futile", [0.0] * 4)


def test_responses_are_recorded_where_they_are_asked_for(queue):
    assert sample(make_worker(), queue).records == []
    report = sample(make_worker(), queue, Order("p", 3, recorded=True))
    assert [row["index"] for row in report.records] == list(range(len(report.rewards)))
    first = report.records[2]
    assert (first["question"], first["answer"], first["response"]) == ("1+1?", "2", "7 7 1")
    pool = pool_of(recipe_of(), report)
    rows = report.samples(report.group(recipe_of(), pool))
    trained = {row["index"]: row["advantage"] for row in rows if row["advantage"] is not None}
    assert trained == learnt(report)


def test_a_response_that_fails_three_times_costs_itself_alone(queue):
    worker = make_worker()
    worker.broken = {1}
    report = sample(worker, queue)
    assert (report.lost, report.failures) == (1, 3)
    assert 1 not in report.indices
    assert 1 not in learnt(report)


def test_a_prompt_that_cannot_be_sampled_fails_alone_and_says_so(queue):
    worker = make_worker()
    worker.broken = set(range(12))
    report = sample(worker, queue)
    assert report == {"status": "failure", "rollwise_lost": 12}
    assert worker.stored == []


def test_validation_is_verls_own(queue):
    worker = make_worker()
    trajectory = {"validate": True, "step": 0}
    asyncio.run(worker._run_prompt({"uid": "u"}, {}, trajectory))
    assert worker.validated == [{"uid": "u"}]
    assert queue.tags == {}


def test_orders_and_reports_survive_the_journey(queue):
    report = sample(make_worker(), queue, Order("p", 3, recorded=True))
    assert PromptReport(**json.loads(json.dumps(asdict(report)))) == report
    order = Order("p", 3, prior=[1.5, 2.5], recorded=True)
    assert Order(**json.loads(json.dumps(asdict(order)))) == order
    pool = pool_of(recipe_of(), report)
    assert pool.positives == sum(report.rewards)


class Engine:
    """A rollout engine's handle whose request never ends by itself."""

    def __init__(self):
        self.generate = SimpleNamespace(remote=self.begin)

    def begin(self, **request):
        self.response = asyncio.get_running_loop().create_future()
        return self.response


@pytest.mark.parametrize("drops", [True, False])
def test_cancelling_waits_until_the_engine_has_let_go(monkeypatch, drops):
    """With an engine that drops requests it ends soon; with another once the response is done."""
    dropped = []
    monkeypatch.setattr(client.ray, "cancel", dropped.append)

    async def cancel():
        engine = Engine()
        task = asyncio.create_task(client._Server(engine, drops).remote(prompt_ids=[1]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        assert dropped == ([engine.response] if drops else [])
        engine.response.set_exception(ConnectionError("dropped")) if drops else (
            engine.response.set_result("done")
        )
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())


def test_each_part_of_a_response_has_a_seed_of_its_own():
    request = {"prompt_ids": [1, 2], "sampling_params": {"seed": 5, "max_tokens": 7}}
    first = client.with_seed_of_part(request)
    second = client.with_seed_of_part(request | {"prompt_ids": [1, 2, 3]})
    seeds = {part["sampling_params"]["seed"] for part in (first, second)}
    assert len(seeds) == 2
    assert 5 not in seeds
    assert first["sampling_params"]["max_tokens"] == 7
    assert client.with_seed_of_part(request) == first
    unseeded = {"prompt_ids": [1], "sampling_params": {}}
    assert client.with_seed_of_part(unseeded) == unseeded


# Agent loops of several turns, and those that users write.


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
        "correct": True,
    }
    return SimpleNamespace(**fields | changed)


def looping(worker, outputs):
    """Have a worker's agent loop return `outputs` for each draw."""

    async def run(params, trajectory, *, trace, **fields):
        return await worker._agent_loop_postprocess(
            copy.deepcopy(outputs), trajectory["validate"], **fields
        )

    worker._run_agent_loop = run
    return worker


ONE = {"exit": {"type": "fixed_count", "samples": 4}, "schedule": {"size": 4, "rounds": 1}}


def test_a_response_of_several_turns_is_one_draw_with_its_price(queue):
    report = sample(looping(make_worker(**ONE), row(3, -2, 2, first=1, last=4)), queue)
    assert len(report.rewards) == 4
    assert report.tokens == 4 * 5  # the tool's two tokens were not drawn
    assert [figures[:5] for figures in report.figures] == [[5, 2.5, False, 2, 5]] * 4
    assert report.weights == [[1, 4]] * 4
    assert [figures[6] for figures in report.figures] == ["done"] * 4


class Served:
    """A rollout engine's handle that hands over two tokens a request."""

    def __init__(self):
        self.generate = SimpleNamespace(remote=self.draw)

    async def draw(self, **request):
        return SimpleNamespace(token_ids=[2, 3])


def requesting(worker, turns):
    """Have the agent loop ask an engine `turns(index)` times for each draw before it answers."""
    run = worker._run_agent_loop

    async def asking(params, trajectory, *, trace, **fields):
        for _ in range(turns(fields["session_id"])):
            task = asyncio.create_task(client._Server(Served(), True).remote(prompt_ids=[1]))
            await task
        return await run(params, trajectory, trace=trace, **fields)

    worker._run_agent_loop = asking
    return worker


def test_all_tokens_that_engines_drew_are_counted(queue):
    """Also those that an agent loop leaves out, and those of attempts that fail."""
    worker = requesting(make_worker(**ONE), lambda index: 2)
    worker.broken = {1}
    report = sample(worker, queue)
    assert (len(report.rewards), report.lost, report.failures) == (3, 1, 3)
    assert [tokens for tokens, *_ in report.figures] == [4, 4, 4]
    assert (report.tokens, report.failed_tokens) == (3 * 4 + 3 * 4, 3 * 4)


def test_the_turns_of_a_cancelled_draw_are_counted(queue):
    """The first draw asks for few turns and ends the prompt; the others are then under way."""
    worker = requesting(
        make_worker(
            exit={"type": "positive_focused", "positives": 1},
            schedule={"type": "streamed", "max_samples": 4},
            graded=lambda correct: (1.0, None),
        ),
        lambda index: 1 if index == 0 else 100,
    )
    report = sample(worker, queue)
    assert (len(report.rewards), report.surplus) == (1, 3)
    assert [tokens for tokens, *_ in report.figures] == [2]
    assert 2 < report.tokens < 2 + 3 * 200


def test_a_response_of_several_rows_is_one_draw(queue):
    """An agent loop that compacts its context returns a row for each part."""
    parts = [row(2, -1), row(4, first=2, last=3)]
    worker = looping(make_worker(**ONE, group={"zero_variance": "keep"}), parts)
    report = sample(worker, queue)
    assert (len(report.rewards), report.tokens) == (4, 4 * 6)
    assert report.weights == [[1, 3]] * 4
    assert [draw for _, draw, _ in worker.stored] == [0, 1, 2, 3]
    spans = [len(span.tokens) for part in parts for span in agent_loop.spans_of(part)]
    assert spans == [2, 1, 4]


def test_the_last_turn_is_what_is_graded(queue):
    worker = make_worker(**ONE)
    graded = []

    async def score(outputs, kwargs):
        start, stop = outputs[-1].extra_fields["rollwise_last_turn"]
        graded.append(outputs[-1].response_ids[start:stop])
        outputs[-1].reward_score = 1.0

    worker._compute_score = score
    for turns in [(3, -2, 2), (3, -2, 2, -4), (3,)]:
        sample(looping(worker, row(*turns)), queue)
    assert graded == [[7, 8]] * 4 + [[7, 8]] * 4 + [[2, 3, 4]] * 4


def test_a_recorded_response_has_all_that_was_said(queue):
    worker = looping(make_worker(**ONE), [row(2, -1, 1), row(1)])
    [first, *_] = sample(worker, queue, Order("p", 3, recorded=True)).records
    assert (first["response"], first["turns"], first["tokens"]) == ("2 3\n4\n5\n2", 3, 4)


@pytest.mark.parametrize(
    ("output", "mode", "reason"),
    [
        ([], "sync", "no response"),
        (row(2, response_mask=[1]), "sync", "a response_mask of 1 for 2 tokens"),
        (row(-2), "sync", "the model drew no token"),
        (row(2, response_logprobs=[-0.5]), "sync", "1 response_logprobs for 2 tokens"),
        (row(2, response_logprobs=None), "colocate_async", "no response_logprobs"),
        (row(2, extra_fields={}), "sync", "nobody knows which weights"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_an_agent_loop_leaves_unknown_is_refused(queue, caplog, output, mode, reason):
    worker = looping(make_worker(), output)
    worker.mode = mode
    assert sample(worker, queue)["status"] == "failure"
    assert reason in caplog.text


def test_a_response_without_a_reward_is_refused(queue, caplog):
    worker = looping(make_worker(), row(2))

    async def no_score(outputs, kwargs):
        pass

    worker._compute_score = no_score
    assert sample(worker, queue)["status"] == "failure"
    assert "gave the response a reward" in caplog.text


@pytest.mark.parametrize(("mode", "drawn"), [("sync", 12), ("colocate_async", 4)])
def test_a_prompt_whose_oldest_response_is_too_old_ends_with_what_it_has(queue, mode, drawn):
    """The weights are updated twice while the first round is drawn, which is as many as may be."""
    worker = make_worker(graded=lambda correct: (0.0, None))
    worker.mode, worker.most_off_policy = mode, 2
    run = worker._run_agent_loop

    async def updated(params, trajectory, *, trace, **fields):
        outputs, fields = await run(params, trajectory, trace=trace, **fields)
        newest = 3 if fields["session_id"] >= 3 else 1
        outputs[-1].extra_fields |= {"min_global_steps": newest, "max_global_steps": newest}
        return outputs, fields

    worker._run_agent_loop = updated
    report = sample(worker, queue)
    assert (len(report.rewards), report.exit_reason) == (drawn, "exhausted")
    assert report.ages(5)[:4] == [3, 3, 3, 1]


def test_figures_without_log_probabilities_are_not_invented(queue):
    worker = make_worker()
    run = worker._run_agent_loop

    async def without(*arguments, **options):
        outputs, fields = await run(*arguments, **options)
        outputs[-1].response_logprobs = None
        return outputs, fields

    worker._run_agent_loop = without
    found = sample(worker, queue).figures
    assert all(np.isnan(figures[1]) and np.isnan(figures[5]) for figures in found)
