"""On two processes the same groups as on one; and shares that differ, in threads."""

import asyncio
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("trl")

import rollwise as rw
from rollwise.engines import BatchEngine, Response
from rollwise.integrations.trl.engines import Graded, SharedEngine
from rollwise.step import draw_session

pytestmark = pytest.mark.trl

SCRIPT = Path(__file__).with_name("in_processes.py")


def train_in(processes, file):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(processes), str(SCRIPT), str(file)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(file.read_text())


@pytest.mark.slow
def test_two_processes_train_on_the_groups_that_one_trains_on(tmp_path):
    one, two = train_in(1, tmp_path / "one.json"), train_in(2, tmp_path / "two.json")
    for name in ("rounds", "streamed", "single"):
        assert two[name]["tokens"] == one[name]["tokens"]
        assert two[name]["weights"] == pytest.approx(one[name]["weights"], rel=1e-5)
        for alone, together in zip(one[name]["steps"], two[name]["steps"], strict=True):
            # `normalize_gradients` reads log-probabilities, whose last digits depend on the batch.
            advantages = [[row.pop("advantage") for row in rows] for rows in (alone, together)]
            assert advantages[1] == pytest.approx(advantages[0], rel=1e-4, abs=1e-12)
            assert together == alone
    assert two["rounds"]["draws"] == one["rounds"]["draws"]
    # TRL's own generation has no seeds for draws; the shape is the same.
    assert [len(rows) for rows in two["trl"]["steps"]] == [16, 16]


class Ranks:
    """Joins the lists of threads, as accelerate joins those of processes."""

    def __init__(self, count):
        self.barrier = threading.Barrier(count, timeout=600)
        self.given = [None] * count

    def gather(self, rank):
        def join(own):
            self.given[rank] = own
            self.barrier.wait()
            everything = [item for part in self.given for item in part]
            self.barrier.wait()
            return everything

        return join


class PortionEngine(BatchEngine):
    """Completes up to `portion` draws at a time; one that is abandoned has cost a token."""

    slots = 5

    def __init__(self, portion):
        self.portion, self.waiting, self.begun = portion, {}, 0

    def _begin(self, draw, prompt):
        self.waiting[draw] = prompt
        self.begun += 1

    def _advance(self):
        done = list(self.waiting)[: self.portion]
        return [(d, Response([*self.waiting.pop(d), 1], (), str(d.seed))) for d in done]

    def _abandon(self, draw):
        del self.waiting[draw]
        return 1

    def load_weights(self, weights):
        pass


def reward_of(draw, response):
    return float(int(response.text) % 10 < 2 + 2 * (draw.key % 4))


def sample_in(ranks, schedule, speed):
    """Run one session a thread; returns each one's pools, what it graded at a time, its tokens."""
    shared, engines = Ranks(ranks), [PortionEngine(speed(rank)) for rank in range(ranks)]

    def work(rank):
        graded = []

        def grade(responses):
            graded.append(len(responses))
            return [Graded((reward_of(*pair),), {}) for pair in responses.items()]

        async def reward(draw, response):
            return engine.graded[draw].rewards[0]

        engine = SharedEngine(engines[rank], grade, shared.gather(rank), rank, ranks)
        session = rw.RolloutSession(range(7), rw.Balanced(2, 2), schedule, seed=4)
        prompts = {key: [key] for key in range(7)}
        try:
            cost = asyncio.run(draw_session(session, engine, prompts, reward))
            tokens = cost.tokens + engine.count_abandoned()
        except Exception:
            shared.barrier.abort()
            raise
        assert not engines[rank].waiting, "what is done twice would go on in the next step"
        pools = {key: [r.draw.index for r in p.responses] for key, p in session.pools.items()}
        assert all(r.tokens == [key, 1] for key in pools for r in session.pools[key].responses)
        return pools, graded, tokens

    with ThreadPoolExecutor(ranks) as threads:
        found = list(threads.map(work, range(ranks)))
    assert all(engine.begun == engines[0].begun for engine in engines)
    return zip(*found, strict=True)


@pytest.mark.parametrize("schedule", [rw.Rounds(3, 4), rw.Streamed(max_samples=12)], ids=str)
@pytest.mark.parametrize("speed", [lambda rank: 2 + rank, lambda rank: 1 if rank else 9])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_shares_of_any_speed_make_the_pools_of_one_engine(schedule, ranks, speed):
    [alone], _, _ = sample_in(1, schedule, speed)
    pools, graded, tokens = sample_in(ranks, schedule, speed)
    assert all(found == alone for found in pools)
    assert all(rows == graded[0] for rows in graded)
    assert all(indices == list(range(len(indices))) for indices in alone.values())
    assert len(set(tokens)) == 1
