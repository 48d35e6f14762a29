"""slime 0.3.1 without Ray, engines and learner: the calls that its rollout manager makes.

`Manager` follows `RolloutManager` of `slime/ray/rollout.py`, and `train.py`; `roll_out` follows
`slime/rollout/sglang_rollout.py`; `Sample` and `Source` are those of `slime/utils/types.py` and
`slime/rollout/data_source.py`.

The model answers by a coin whose seed is the sample's index, and takes a few turns of the event
loop for it, more for one sample than for another.
"""

import asyncio
import importlib
import itertools
import random
import types
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

HOOKS = "rollwise.integrations.slime"


@dataclass
class Sample:
    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    group_index: int | None = None
    index: int | None = None
    prompt: str = ""
    tokens: list[int] = field(default_factory=list)
    response_length: int = 0
    reward: Any = None
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    remove_sample: bool = False
    status: Status = Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)

    def __lt__(self, other):
        return self.index < other.index

    def get_reward_value(self, args):
        return self.reward if not args.reward_key else self.reward[args.reward_key]


class Source:
    def __init__(self, args):
        self.args, self.buffer = args, []
        rows = [Sample(prompt=f"prompt {i}", metadata=dict(m)) for i, m in enumerate(args.rows)]
        self.dataset = types.SimpleNamespace(origin_samples=rows) if args.prompt_data else None
        self.buffer_filter = pop_first

    def add_samples(self, samples):
        for group in samples:
            assert isinstance(group, list)
            assert len(group) == self.args.n_samples_per_prompt
            self.buffer.append(group)


def pop_first(args, rollout_id, buffer, num_samples):
    popped = buffer[:num_samples]
    del buffer[: len(popped)]
    return popped


def install():
    """Put the stand-in where slime is looked for; returns the modules by name."""
    names = ("slime", "slime.rollout", "slime.rollout.data_source")
    modules = {name: types.ModuleType(name) for name in names}
    modules[names[-1]].RolloutDataSourceWithBuffer = Source
    return modules


def arguments(**changed):
    """slime's arguments, as they are parsed and validated."""
    given = {
        "data_source_path": f"{HOOKS}.PromptSource",
        "custom_reward_post_process_path": f"{HOOKS}.post_process_rewards",
        "custom_convert_samples_to_train_data_path": None,
        "custom_advantage_function_path": None,
        "dynamic_sampling_filter_path": None,
        "load_debug_rollout_data": None,
        "advantage_estimator": "grpo",
        "normalize_advantages": False,
        "grpo_std_normalization": True,
        "calculate_per_token_loss": False,
        "rollout_global_dataset": True,
        "partial_rollout": False,
        "prompt_data": "train.jsonl",
        "reward_key": None,
        "rollout_seed": 42,
        "rollout_batch_size": 8,
        "over_sampling_batch_size": 8,
        "n_samples_per_prompt": 1,
        "save": None,
        "load": None,
        "rows": [{}] * 64,
        "rollout_function": roll_out,
    } | changed
    return Namespace(**given)


def with_settings(folder, text, **changed):
    """slime's arguments with a settings file of ours."""
    path = folder / "settings.toml"
    path.write_text(text)
    return arguments(rollwise_settings=str(path), **changed)


def load_function(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


class Manager:
    """The calls of `RolloutManager`, and what it would train on."""

    def __init__(self, args):
        self.args = args
        self.data_source = load_function(args.data_source_path)(args)
        self.post_process = load_function(args.custom_reward_post_process_path)

    def generate(self, rollout_id):
        data = self.args.rollout_function(self.args, rollout_id, self.data_source)
        data = list(itertools.chain.from_iterable(data))
        _, rewards = self.post_process(self.args, data)
        return [(s.prompt, s.index, reward) for s, reward in zip(data, rewards, strict=True)]

    def train(self, count, start=0, save_at=None):
        """The loop of `train.py`; returns what was trained on: prompts, indices, advantages."""
        self.data_source.load(start - 1)
        found = []
        for rollout_id in range(start, count):
            found.append(self.generate(rollout_id))
            if rollout_id == save_at:
                self.data_source.save(rollout_id)
        return found


async def answer(sample, state):
    """Draw a response, if the coin falls early enough; at once if it was drawn before."""
    if sample.status in (Sample.Status.COMPLETED, Sample.Status.TRUNCATED):
        return sample
    coin = random.Random(sample.index)
    for _ in range(coin.randrange(40)):
        await asyncio.sleep(0)
        if state.aborted:
            sample.status = Sample.Status.ABORTED
            return sample
    length = coin.randrange(1, 9)
    sample.tokens = [0, 1, 2, *range(length)]
    sample.rollout_log_probs = [-coin.random() for _ in range(length)]
    sample.response_length = length
    sample.reward = float(coin.random() < int(sample.prompt.split()[1]) / 64)
    sample.status = Sample.Status.COMPLETED
    return sample


async def _roll_out(args, get_samples):
    async def draw(group):
        return list(await asyncio.gather(*(answer(sample, state) for sample in group)))

    state, data = types.SimpleNamespace(aborted=False), []
    pending, remaining = set(), 0
    while len(data) < args.rollout_batch_size:
        while remaining < args.rollout_batch_size:
            groups = get_samples(args.over_sampling_batch_size)
            pending |= {asyncio.create_task(draw(group)) for group in groups}
            remaining += len(groups)
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        data += sorted(task.result() for task in done)[: args.rollout_batch_size - len(data)]
    state.aborted = True
    broken_off = sorted([await task for task in pending])
    return sorted(data), broken_off if args.partial_rollout else []


def roll_out(args, rollout_id, source):
    """`generate_rollout`: a batch from over-sampled groups, drawn in another thread."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(asyncio.run, _roll_out(args, source.get_samples))
    data, broken_off = done.result()
    if broken_off:
        source.add_samples(broken_off)
    return data
