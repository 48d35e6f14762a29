"""Single responses under TRL: one a prompt, compared with a belief, and bounded in their update."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("trl")

from tiny_runs import logged

import rollwise as rw
from rollwise.beliefs import LogitKalman
from rollwise.config import make_config
from rollwise.config.step import step_recipe
from rollwise.integrations.trl import single_responses
from rollwise.step.episodes import ResponseFigures
from rollwise.step.groups import gradient_size

pytestmark = pytest.mark.trl

ROWS = 12
NAMED_BY_TRL = (
    *("reward", "frac_reward_zero_std"),
    *("completions/mean_length", "completions/clipped_ratio"),
)
RATIO = 1.0


def single(**changed):
    return single_responses(**{"response_cap": 0.0} | changed)


@pytest.fixture
def make_single(make_trainer):
    """Makes a trainer that draws one response to each of 12 of the 24 prompts."""

    def make(sampling=None, **changed):
        return make_trainer(sampling or single(), **{"per_device_train_batch_size": ROWS} | changed)

    return make


def test_by_default_a_trainer_follows_the_recipe_of_rollwise_train(make_trainer):
    default = replace(step_recipe(make_config()), objective="linear", baseline="belief")
    options = {"per_device_train_batch_size": ROWS, "scale_rewards": "group", "seed": 0}
    trainer = make_trainer(given={"sampling": None}, loss_type="grpo", **options)
    assert trainer._recipe == default
    assert trainer._recipe.resolved_objective == step_recipe(make_config()).resolved_objective
    assert isinstance(trainer.prompt_sampler, rw.Posterior)
    assert isinstance(trainer.prompt_sampler.belief, LogitKalman)
    trainer.train()
    assert logged(trainer, "rollwise/draws") == [ROWS] * 2
    # What is drawn is what is trained on, so ours equal those of TRL's that they are named after.
    for name in NAMED_BY_TRL:
        assert logged(trainer, f"rollwise/{name}") == pytest.approx(logged(trainer, name)), name
        assert len(logged(trainer, name)) == 2

    trainer = make_trainer(given={"sampling": None}, loss_type="grpo", top_p=0.9, **options)
    assert trainer._recipe == replace(default, response_cap=0.0)


def test_each_response_is_compared_with_what_was_expected_of_its_prompt(make_single, watch):
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

    trainer = make_single(single(prompt_sampler=Listening), max_steps=3)
    seen = watch(trainer)
    trainer.train()
    assert told == [(step, list(asked)) for step, asked in enumerate(expected, 1)]
    for asked, pools, rows, batch in zip(expected, seen.pools, seen.rows, seen.ours, strict=True):
        keys = [row.completion.draw.key for row in rows]
        assert keys == list(asked) and len(keys) == ROWS
        assert all(row.counts for row in rows)
        surprises = [pools[key].rewards[0] - asked[key] for key in keys]
        assert batch["advantages"].tolist() == pytest.approx(surprises, rel=1e-5)
    assert len({rate for asked in expected[1:] for rate in asked.values()}) > 1
    assert logged(trainer, "rollwise/draws") == [ROWS] * 3
    assert len(logged(trainer, "rollwise/pass_rate_by_expected/1/2")) == 3
    assert trainer.state.epoch == 3 * ROWS / len(trainer.train_dataset)


@pytest.mark.parametrize("loss_type, average", [("dapo", "tokens"), ("grpo", "responses")])
def test_each_response_is_bounded_as_trls_loss_averages(make_single, watch, loss_type, average):
    """A run without a bound draws the same responses, with the same seeds."""
    options = {"max_steps": 1, "loss_type": loss_type}
    free, capped = make_single(**options), make_single(single(response_cap=RATIO), **options)
    seen, bounded = watch(free), watch(capped)
    free.train()
    capped.train()
    [rows], [found] = seen.rows, bounded.rows
    figures = [ResponseFigures.of(row.completion) for row in rows]
    sizes = np.array(
        [gradient_size(row.advantage, f, average) for row, f in zip(rows, figures, strict=True)]
    )
    scales = np.minimum(1, RATIO * np.median(sizes) / sizes)
    assert 0 < (scales < 1).sum() < len(rows)
    wanted = [row.advantage * scale for row, scale in zip(rows, scales, strict=True)]
    assert [row.advantage for row in found] == pytest.approx(wanted, rel=1e-5)
    assert logged(capped, "rollwise/capped_responses") == [(scales < 1).sum()]
