"""What cannot be combined with adaptive sampling under TRL is refused by name."""

import pytest

pytest.importorskip("trl")

from datasets import Dataset

import rollwise as rw
from rollwise.integrations.trl import AdaptiveSampling

pytestmark = pytest.mark.trl

SINGLE = {
    "exit_rule": rw.FixedCount(1),
    "schedule": rw.Rounds(1, rounds=1),
    "group_size": 1,
    "strategy": "all",
    "zero_variance": "keep",
    "objective": "linear",
    "baseline": "belief",
    "normalize_gradients": True,
}

STREAM = Dataset.from_list([{"prompt": "1+1?"}]).to_iterable_dataset()

REFUSED = {
    "scale_rewards must be 'group'": ({}, {"scale_rewards": "batch"}),
    "objective='log' needs scale_rewards='none'": (
        {"objective": "log"},
        {"scale_rewards": "group"},
    ),
    "multi_objective_aggregation must be": (
        {},
        {"multi_objective_aggregation": "normalize_then_sum"},
    ),
    "size` must be even": ({}, {"num_generations": 3, "per_device_train_batch_size": 12}),
    "needs rollwise's engine.*top_k": ({"schedule": rw.Streamed()}, {"top_k": 5}),
    "allows 32 draws per prompt.*strategy='all' no more": ({"strategy": "all"}, {}),
    "allows 1 draws per prompt.*set group_size=1": (SINGLE | {"group_size": None}, {}),
    "pilot=8.*allows 8 draws per prompt.*set group_size=8": (
        {"allocation": rw.GVM(2, pilot=8, maximum=4), "strategy": "all"},
        {"scale_rewards": "none"},
    ),
    "can never be satisfied": ({"exit_rule": rw.Balanced(9, 9), "schedule": rw.Rounds(4, 4)}, {}),
    "rollout_func cannot be used with": (
        {},
        {"given": {"rollout_func": lambda prompts, trainer: {}}},
    ),
    "^tools cannot be used with .*`episode.type`.*verl's agent loops": (
        {},
        {"given": {"tools": [len]}},
    ),
    "^environment_factory cannot be used with": ({}, {"given": {"environment_factory": dict}}),
    "train_dataset must hold the prompts of a step, 32 ": (
        {},
        {"per_device_train_batch_size": 128},
    ),
    "rows have numbers.*IterableDataset": ({}, {"given": {"train_dataset": STREAM}}),
    "group_size must divide generation_batch_size, which is 16.*got 6": ({"group_size": 6}, {}),
    "compares a response.*`baseline` to 'belief'": (
        SINGLE | {"objective": "reference", "baseline": "pool"},
        {},
    ),
    "normalize_gradients needs the log-probability": (SINGLE | {"engine": "trl"}, {}),
    "engine must be one of": ({"engine": "vllm"}, {}),
    "group_size must be at least 1": ({"group_size": 0}, {}),
    "engine_batch_size must be at least 1": ({"engine_batch_size": 0}, {}),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_does_not_go_with_it_is_refused_by_name(make_trainer, reason):
    sampling, options = REFUSED[reason]
    with pytest.raises(ValueError, match=reason):
        make_trainer(AdaptiveSampling(**sampling), **options)
