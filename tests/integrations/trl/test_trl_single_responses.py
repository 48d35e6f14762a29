"""Single responses under TRL: one a prompt, compared with a belief, and bounded in their update."""

from dataclasses import replace

import pytest

pytest.importorskip("trl")

from datasets import Dataset
from tiny_runs import is_correct, keep, logged, watch

import rollwise as rw
from rollwise.beliefs import LogitKalman
from rollwise.config import make_config
from rollwise.config.step import step_recipe
from rollwise.errors import ConfigError
from rollwise.integrations.trl import (
    AdaptiveSampling,
    grpo_config,
    method_sampling,
    single_responses,
)
from rollwise.integrations.trl.methods import differences
from rollwise.methods import METHODS

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
        keys = [row.draw.key for row in rows]
        assert keys == list(asked) and len(keys) == ROWS
        assert all(row.counts for row in rows)
        surprises = [pools[key].rewards[0] - asked[key] for key in keys]
        assert batch["advantages"].tolist() == pytest.approx(surprises, rel=1e-5)
    assert len({rate for asked in expected[1:] for rate in asked.values()}) > 1
    assert logged(trainer, "rollwise/draws") == [ROWS] * 3
    assert len(logged(trainer, "rollwise/pass_rate_by_expected/1/2")) == 3
    assert trainer.state.epoch == 3 * ROWS / len(trainer.train_dataset)


TINY = {"use_cpu": True, "bf16": False, "report_to": "none"}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_s_configuration_is_the_one_it_was_tested_with(method, tmp_path):
    settings = make_config({"method": method}, {"model": {"path": "mine"}})
    if settings.learner.max_divergence:
        with pytest.raises(ConfigError, match="max_divergence"):
            grpo_config(method, output_dir=str(tmp_path), **TINY)
        return
    learner, rows = settings.learner, settings.prompts.batch_size * settings.group.size
    made = grpo_config(method, output_dir=str(tmp_path), **TINY)
    assert made.generation_batch_size == rows
    assert made.steps_per_generation == made.gradient_accumulation_steps * learner.mini_batches
    assert (made.max_grad_norm, made.warmup_steps) == (
        learner.max_grad_norm,
        learner.warmup_updates,
    )
    assert (made.learning_rate, made.epsilon_high) == (learner.learning_rate, learner.clip_high)
    assert differences(made, method) == "all as tested"
    given = {"per_device_train_batch_size": 2, "max_grad_norm": 0.5}
    made = grpo_config(method, output_dir=str(tmp_path), **given, **TINY)
    assert (made.per_device_train_batch_size, made.generation_batch_size) == (2, rows)
    assert (
        differences(made, method)
        == f"other than tested: max_grad_norm 0.5 ({learner.max_grad_norm})"
    )
    if settings.allocation.type == "none":
        ours, recipe = method_sampling(method).recipe(made), step_recipe(settings)
        for part in ("objective", "exit_rule", "schedule"):
            assert getattr(ours, f"resolved_{part}") == getattr(recipe, f"resolved_{part}")
        for part in ("average", "normalize_gradients", "normalize_advantages", "zero_variance"):
            assert getattr(ours, part) == getattr(recipe, part)


def test_what_does_not_divide_an_update_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must divide 128, the responses of an update.*got 3"):
        grpo_config(output_dir=str(tmp_path), per_device_train_batch_size=3, **TINY)


def test_the_start_says_what_is_done_and_how_many_updates_that_makes(make_trainer, capsys):
    options = {"per_device_train_batch_size": 8, "max_steps": -1, "num_train_epochs": 2}
    trainer = make_trainer(given={"sampling": None}, **options)
    line = capsys.readouterr().out
    assert (
        "rollwise: single; 8 prompts a generation step, 1 response each; 2 epochs of 24 prompts, 6 "
        in line
    )
    assert "updates (with GRPOTrainer and num_generations=4: 24); other than tested: " in line
    assert "warmup_steps 0 (20)" in line and "generation_batch_size 8 (256)" in line
    trainer.train()
    assert trainer.state.global_step == 6
    make_trainer(single_responses(objective="log"), max_steps=1, scale_rewards="none")
    assert "; 1 updates; other than tested: " in (line := capsys.readouterr().out)
    assert "objective 'log'" in line
    make_trainer(AdaptiveSampling())
    assert (
        "rollwise: your own sampling; 4 prompts a generation step, groups of 4"
        in capsys.readouterr().out
    )


def of_format(completions, **others):
    return [1.0] * len(completions)


def test_rewards_of_several_functions_are_refused_with_the_way_out(make_trainer):
    given, rewards = {"sampling": None}, [is_correct, of_format]
    with pytest.raises(
        ValueError, match=r"got [12] \(is_correct [01], of_format 1\).*method='grpo'"
    ):
        make_trainer(rewards=rewards, given=given).train()
    trainer = make_trainer(rewards=rewards, given=given | {"correctness": "is_correct"})
    trainer.train()
    assert logged(trainer, "rewards/of_format/mean") == [1.0, 1.0]
    assert logged(trainer, "rollwise/reward") == logged(trainer, "rewards/is_correct/mean")
    trainer = make_trainer(rewards=rewards, given=given | {"method": "grpo"})
    trainer.train()
    assert min(logged(trainer, "rollwise/reward")) > 1


def test_beliefs_begin_at_the_evaluation_before_training(make_trainer):
    def is_five(completions, **others):
        return [float("5" in text) for text in completions]

    rows = Dataset.from_list([{"prompt": f"{number}+1?", "answer": ""} for number in range(8)])
    options = {"loss_type": "grpo", "per_device_train_batch_size": ROWS, "scale_rewards": "group"}
    trainer = make_trainer(
        given={"sampling": None, "eval_dataset": rows},
        rewards=is_five,
        eval_on_start=True,
        max_steps=1,
        **options,
    )
    begun = keep(trainer.prompt_sampler, "start_at", lambda _, rate: rate)
    first = keep(trainer.prompt_sampler, "expected_pass_rates", lambda expected, _: expected.mean())
    trainer.train()
    assert begun == logged(trainer, "eval_reward") and 0 < begun[0] < 1
    assert first[0] == pytest.approx(begun[0])
