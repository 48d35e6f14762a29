"""What the plug-in costs verl's driver a step, beyond stock verl: no model, real TransferQueue.

One step of 512 prompts with up to 32 draws each, as the driver sees it: it chooses the prompts and
makes their batch, polls the queue and takes the rows out of it, learns from the pools, computes
advantages and writes its records. Stock verl does its part of that: its data loader, its replay
buffer, GRPO's advantages. Both see the same rows. Intervals are 95 %, by bootstrap over steps.

    python benchmarks/speed/verl_driver.py [--quick]            (needs the extra `verl`)
"""

import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("TQ_LOGGING_LEVEL", "ERROR")  # read when the queue is imported

import numpy as np
import ray
import torch
import transfer_queue as tq
import verl
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.dataset.rl_dataset import collate_fn

from rollwise.config import make_config
from rollwise.config.step import step_recipe
from rollwise.integrations.verl.agent_loop import Graded
from rollwise.integrations.verl.records import Recorder
from rollwise.integrations.verl.replay_buffer import PoolReplayBuffer
from rollwise.integrations.verl.reports import Order, PromptReport
from rollwise.integrations.verl.settings import NAME
from rollwise.integrations.verl.trainer import RollwiseTrainer
from rollwise.step import make_group

sys.path.append(str(Path(__file__).parents[1]))

from measuring import arguments, bootstrapped, print_line, print_table, shown

PROMPTS, TOKENS, SET = 512, 64, 50_000
WHO = ("ours", "stock")


class Dataset(list):
    """A data set whose rows cost nothing to read, so that the data loaders alone are measured."""


def main() -> None:
    """Measure, compare, print."""
    given = arguments(__doc__, "3 steps instead of 15", prompts=PROMPTS).parse_args()
    steps = 3 if given.quick else 15
    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")
    queue = OmegaConf.load(
        Path(verl.__file__).parent / "trainer/config/transfer_queue/transfer_queue.yaml"
    )
    queue.backend.SimpleStorage.num_data_storage_units = 1
    tq.init(queue)
    rows = Dataset(
        {"raw_prompt": [{"role": "user", "content": f"{i}?"}], "index": i, "data_source": "x"}
        for i in range(SET)
    )
    with tempfile.TemporaryDirectory() as folder:
        ours = make_ours(rows, folder, given.prompts)
        stock = make_stock(rows, given.prompts)
        measured = [step(ours, stock, number) for number in range(steps + 1)][1:]
    tq.close()
    ray.shutdown()
    show(measured, given.prompts)


def make_ours(rows: Dataset, folder: str, prompts: int) -> RollwiseTrainer:
    """Make our trainer, but for engines and workers."""
    trainer = object.__new__(RollwiseTrainer)
    trainer.settings = make_config(
        {
            "method": "reinforce_ada",
            "prompts": {"type": "cdas", "batch_size": prompts},
            "exit": {"give_up_below": 0.02},
        }
    )
    keys = [f"{i:016x}" for i in range(SET)]
    trainer.places = {key: place for place, key in enumerate(keys)}
    trainer.recipe = step_recipe(trainer.settings)
    trainer.sampler = trainer.settings.prompts.make(keys, 0, [None] * SET)
    trainer.train_dataset = rows
    trainer._question = str
    trainer.replay_buffer = make_buffer(PoolReplayBuffer)
    trainer.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: None)
    trainer.curr_step_profile = False
    trainer._under_way = {}
    trainer.recorder = Recorder(trainer.settings, folder)
    trainer.recorder.begin(0, None)
    return trainer


def make_stock(rows: Dataset, prompts: int) -> PPOTrainerSync:
    """Make verl's own, likewise."""
    trainer = object.__new__(PPOTrainerSync)
    trainer.train_dataloader = StatefulDataLoader(
        rows, batch_size=prompts, shuffle=True, drop_last=True, collate_fn=collate_fn
    )
    trainer.train_dataloader_it = None
    trainer.config = OmegaConf.create({"data": {"train_batch_size": prompts}})
    trainer.replay_buffer = make_buffer(ReplayBuffer)
    return trainer


def make_buffer(kind: type[ReplayBuffer]) -> ReplayBuffer:
    """Make a replay buffer that never has to wait."""
    return kind("sync", OmegaConf.create({}), None, "drop", OmegaConf.create({}))


def step(ours: RollwiseTrainer, stock: PPOTrainerSync, number: int) -> dict[str, float]:
    """Time both on the same prompts; the seconds of either's parts."""
    ours.global_steps = stock.global_steps = number
    seconds: dict[str, float] = {}
    batch = timed(seconds, "ours.prompts", ours._next_train_batch)
    timed(seconds, "stock.prompts", stock._next_train_batch)
    orders = [Order(**field) for field in batch[NAME]]
    reports = {
        uid: sample(ours, order, number) for uid, order in zip(batch["uid"], orders, strict=True)
    }
    for name, trainer in (("stock", stock), ("ours", ours)):
        names = put(reports, with_reports=name == "ours")
        buffer = trainer.replay_buffer
        taken, _ = timed(seconds, f"{name}.rows", buffer.sample, number, "train", len(orders))
        advantages = grpo if name == "stock" else learn
        timed(seconds, f"{name}.learning", advantages, trainer, taken)
        tq.kv_clear(keys=sorted(set(names) & set(taken.keys)), partition_id="train")
    line = {"step": number, **ours._figures, "seconds": {}}
    timed(seconds, "ours.records", ours.recorder.step, line)
    return seconds


def sample(trainer: RollwiseTrainer, order: Order, number: int) -> PromptReport:
    """Sample one prompt as a worker does, its pass rate by its key."""
    session = trainer.recipe.session([order.key], order.step, priors=[order.prior])
    threshold = (int(order.key, 16) % 97) / 97
    while draws := session.next_draws():
        for draw in draws:
            correct = (draw.seed % 10**6) / 10**6 < threshold
            response = Graded(
                [0] * TOKENS,
                np.full(TOKENS, -0.5, np.float32),
                turns=1,
                reward=float(correct),
                draw=draw,
                outputs=(),
                fields={},
                weights=(number - 1, number - 1),
            )
            session.record(draw, float(correct), response)
    group = make_group(trainer.recipe, session.pools[order.key])
    return PromptReport.of(session, group, session.surplus * TOKENS, [])


def put(reports: dict[str, PromptReport], with_reports: bool) -> list[str]:
    """Put what the workers put: a tag for each prompt, and its group's rows."""
    tags = [
        {"is_prompt": True, "global_steps": 0, "status": "finished"}
        | ({NAME: asdict(report)} if with_reports else {})
        for report in reports.values()
    ]
    tq.kv_batch_put(keys=list(reports), partition_id="train", tags=tags)
    names = [
        f"{uid}_{i}_0" for uid, r in reports.items() for i in map(r.indices.__getitem__, r.members)
    ]
    rows = [{"status": "success", "seq_len": TOKENS, "global_steps": 0} for _ in names]
    tq.kv_batch_put(keys=names, partition_id="train", tags=rows)
    return names


def learn(trainer: RollwiseTrainer, batch: KVBatchMeta) -> None:
    """What our trainer does between sampling and learning."""
    trainer._used = {}
    base = PPOTrainer._compute_advantage
    # verl's own part of this reads tensors and writes them: the same for both, so left out.
    PPOTrainer._compute_advantage = lambda self, batch, metrics: self._advantages(
        *masks(len(batch.keys))
    )
    try:
        trainer._compute_advantage(batch, {})
    finally:
        PPOTrainer._compute_advantage = base
    trainer._tell()


def grpo(trainer: PPOTrainerSync, batch: KVBatchMeta) -> None:
    """What stock verl does there."""
    uids = np.array([name.split("_")[0] for name in batch.keys], dtype=object)
    compute_grpo_outcome_advantage(*masks(len(uids)), uids)


def masks(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards and mask of some rows of 1,024 tokens."""
    return torch.zeros(rows, 1024), torch.ones(rows, 1024)


def timed(seconds: dict[str, float], name: str, function, *arguments):  # type: ignore[no-untyped-def]
    """Call a function, and note how long it took."""
    began = time.perf_counter()
    result = function(*arguments)
    seconds[name] = time.perf_counter() - began
    return result


def show(measured: list[dict[str, float]], prompts: int) -> None:
    """Print a table, and a line of JSON."""
    rows = [
        (part, *(f"{np.mean([s.get(f'{who}.{part}', 0.0) for s in measured]):.3f}" for who in WHO))
        for part in ("prompts", "rows", "learning", "records")
    ]
    ours, stock = (
        np.array([sum(v for k, v in s.items() if k.startswith(who)) for s in measured])
        for who in WHO
    )
    figures = {
        "driver_seconds": bootstrapped(np.mean, ours),
        "stock_seconds": bootstrapped(np.mean, stock),
        "seconds_beyond_stock": bootstrapped(np.mean, ours - stock),
    }
    rows += [(name, shown(figure), "") for name, figure in figures.items()]
    title = f"Seconds at verl's driver, {prompts} prompts of up to 32 draws a step"
    print_table(title, ("", "rollwise", "stock verl"), rows)
    print_line(figures)


if __name__ == "__main__":
    main()
