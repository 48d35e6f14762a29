"""What cannot be combined with adaptive sampling under TRL is refused by name."""

import pytest

pytest.importorskip("trl")

from datasets import Dataset

import rollwise as rw
from rollwise.integrations.trl import AdaptiveSampling, single_responses

pytestmark = pytest.mark.trl

STREAM = Dataset.from_list([{"prompt": "1+1?"}]).to_iterable_dataset()

REFUSED = {
    "scale_rewards must be 'group'": {"scale_rewards": "batch"},
    "objective='log' needs scale_rewards='none'": {
        "scale_rewards": "group",
        "sampling": AdaptiveSampling(objective="log"),
    },
    "multi_objective_aggregation must be": {"multi_objective_aggregation": "normalize_then_sum"},
    "size must be even": {"num_generations": 3, "per_device_train_batch_size": 12},
    "needs rollwise's engine.*top_k": {
        "top_k": 5,
        "sampling": AdaptiveSampling(schedule=rw.Streamed()),
    },
    "allows 32 draws a prompt.*and with strategy='all' no more": {
        "sampling": AdaptiveSampling(strategy="all")
    },
    "can never be satisfied": {
        "sampling": AdaptiveSampling(exit_rule=rw.Balanced(9, 9), schedule=rw.Rounds(4, 4))
    },
    "rollout_func does not go with": {"given": {"rollout_func": lambda prompts, trainer: {}}},
    "^tools does not go with .*`episode.type`.*verl's agent loops": {"given": {"tools": [len]}},
    "^environment_factory does not go with": {"given": {"environment_factory": dict}},
    "train_dataset must hold the prompts of a step, 32 ": {"per_device_train_batch_size": 128},
    "rows have numbers.*IterableDataset": {"given": {"train_dataset": STREAM}},
}

OF_SINGLE_RESPONSES = {
    "group_size must divide generation_batch_size, which is 12.*got 8": {
        "group_size": 8,
        "exit_rule": rw.FixedCount(8),
        "schedule": rw.Rounds(8, rounds=1),
    },
    "allows 1 draws a prompt.*set group_size=1": {"group_size": None},
    "compares a response.*baseline='belief'": {"objective": "reference", "baseline": "pool"},
    "allows 2 draws a prompt.*groups of 1 ": {"schedule": rw.Rounds(2, rounds=1)},
    "response_cap needs the log-probability": {"response_cap": 1.0, "engine": "trl"},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_does_not_go_with_it_is_refused_by_name(make_trainer, reason):
    options = dict(REFUSED[reason])
    sampling = options.pop("sampling", None)
    with pytest.raises(ValueError, match=reason):
        make_trainer(sampling, **options)


@pytest.mark.parametrize("reason", OF_SINGLE_RESPONSES)
def test_what_does_not_go_with_single_responses_is_refused(make_trainer, reason):
    sampling = single_responses(**{"response_cap": 0.0} | OF_SINGLE_RESPONSES[reason])
    with pytest.raises(ValueError, match=reason):
        make_trainer(sampling, per_device_train_batch_size=12)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"engine": "vllm"}, "engine must be one of"),
        ({"group_size": 0}, "group_size must be at least 1"),
        ({"engine_batch_size": 0}, "engine_batch_size must be at least 1"),
    ],
)
def test_options_are_checked_where_they_are_made(options, reason):
    with pytest.raises(ValueError, match=reason):
        AdaptiveSampling(**options)
