"""Single responses under TRL: one a prompt, compared with a belief, and bounded in their update."""

from dataclasses import replace

import pytest

pytest.importorskip("trl")

from tiny_runs import logged, watch

import rollwise as rw
from rollwise.beliefs import LogitKalman
from rollwise.config import make_config
from rollwise.config.step import step_recipe
from rollwise.integrations.trl import single_responses

pytestmark = pytest.mark.trl

ROWS = 12
NAMED_BY_TRL = {
    "reward": "reward",
    "zero_variance_after": "frac_reward_zero_std",
    "response_tokens": "completions/mean_length",
    "truncated": "completions/clipped_ratio",
}


def test_by_default_a_trainer_follows_the_recipe_of_rollwise_train(make_trainer):
    default = replace(step_recipe(make_config()), objective="linear", baseline="belief")
    options = {"per_device_train_batch_size": ROWS, "scale_rewards": "group", "seed": 0}
    trainer = make_trainer(given={"sampling": None}, loss_type="grpo", **options)
    assert trainer._recipe == default
    assert trainer._recipe.resolved_objective == step_recipe(make_config()).resolved_objective
    assert isinstance(trainer.prompt_sampler, rw.Posterior)
    assert trainer.prompt_sampler.exploration == 0.5
    assert isinstance(trainer.prompt_sampler.belief, LogitKalman)
    trainer.train()
    assert logged(trainer, "rollwise/draws") == [ROWS] * 2
    for name, theirs in NAMED_BY_TRL.items():  # what is drawn is what is trained on
        assert logged(trainer, f"rollwise/{name}") == pytest.approx(logged(trainer, theirs)), name
        assert len(logged(trainer, theirs)) == 2

    trainer = make_trainer(given={"sampling": None}, loss_type="grpo", top_p=0.9, **options)
    assert trainer._recipe == replace(default, normalize_gradients=False)


def test_each_response_is_compared_with_what_was_expected_of_its_prompt(make_trainer):
    """The sampler hears of each step before it is asked again."""
    expected, told = [], []

    class Listening(rw.Worth):
        def ask(self, *arguments, **options):
            keys = super().ask(*arguments, **options)
            expected.append(dict(zip(keys, self.expected_pass_rates(keys), strict=True)))
            return keys

        def tell(self, keys, correct, drawn):
            told.append((len(expected), list(keys)))
            super().tell(keys, correct, drawn)

    sampling = single_responses(prompt_sampler=Listening, normalize_gradients=False)
    trainer = make_trainer(sampling, per_device_train_batch_size=ROWS, max_steps=3)
    seen = watch(trainer)
    trainer.train()
    assert told == [(step, list(asked)) for step, asked in enumerate(expected, 1)]
    for asked, pools, rows, batch in zip(
        expected, seen.pools, seen.rows, seen.batches, strict=True
    ):
        keys = [row.completion.draw.key for row in rows]
        assert keys == list(asked) and len(keys) == ROWS
        assert all(row.counts for row in rows)
        surprises = [pools[key].rewards[0] - asked[key] for key in keys]
        assert batch["advantages"].tolist() == pytest.approx(surprises, rel=1e-5)
    assert len({rate for asked in expected[1:] for rate in asked.values()}) > 1
    assert logged(trainer, "rollwise/draws") == [ROWS] * 3
    assert len(logged(trainer, "rollwise/pass_rate_by_expected/1/2")) == 3
    assert trainer.state.epoch == 3 * ROWS / len(trainer.train_dataset)
