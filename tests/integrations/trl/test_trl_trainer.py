"""TRL's trainer with adaptive sampling, run for real on the built-in model."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

pytest.importorskip("trl")

from datasets import Dataset
from peft import LoraConfig
from tiny_runs import GROUP, PROBLEMS, PROMPTS, is_correct, keep, logged, watch, weights_of
from trl import GRPOTrainer

import rollwise as rw
from rollwise.config import ModelSettings
from rollwise.engines.transformers import TransformersEngine
from rollwise.errors import RunError
from rollwise.integrations.trl import AdaptiveSampling
from rollwise.integrations.trl.engines import TRLEngine
from rollwise.models.loading import load_model

pytestmark = pytest.mark.trl

GRPO = AdaptiveSampling(
    exit_rule=rw.FixedCount(GROUP),
    schedule=rw.Rounds(GROUP, rounds=1),
    objective="grpo",
    strategy="all",
    zero_variance="keep",
)


@pytest.mark.parametrize("engine", ["auto", "trl"])
@pytest.mark.parametrize("scale_rewards", ["group", "none"])
def test_with_grpo_s_settings_the_advantages_are_trl_s_own(
    make_trainer, monkeypatch, engine, scale_rewards
):
    sampling = replace(GRPO, engine=engine)
    trainer = make_trainer(sampling, scale_rewards=scale_rewards)
    score = "_generate_and_score_completions"
    seen = keep(GRPOTrainer, score, lambda output, *_: dict(output), monkeypatch.setattr)
    batches = keep(trainer, score)
    trainer.train()
    assert len(batches) == 2
    for theirs, ours in zip(seen, batches, strict=True):
        assert theirs["advantages"].abs().sum() > 0
        torch.testing.assert_close(ours["advantages"], theirs["advantages"])
        assert torch.equal(ours["completion_mask"], theirs["completion_mask"])


def correct_if_even(completions, answer, **others):
    """No reward where the answer is odd, so that some prompts never show signal."""
    rewards = is_correct(completions, answer)
    return [r * (int(right) % 2 == 0) for r, right in zip(rewards, answer, strict=True)]


def test_what_is_trained_on_is_the_balanced_groups_with_global_statistics(make_trainer):
    trainer = make_trainer(rewards=correct_if_even)
    seen = watch(trainer)
    trainer.train()
    for step, batch in enumerate(seen.batches):
        rows = seen.rows[step]
        for start in range(0, PROMPTS * GROUP, GROUP):
            group = rows[start : start + GROUP]
            pool = seen.pools[step][group[0].draw.key]
            rewards = [pool.rewards[row.draw.index] for row in group]
            if pool.zero_variance:
                assert not any(row.counts for row in group)
                continue
            assert all(row.counts for row in group)
            if pool.exit_reason == "satisfied":
                assert sum(rewards) == GROUP / 2
            wanted = np.array(rewards) - pool.rewards.mean()
            np.testing.assert_allclose([row.advantage for row in group], wanted)
        np.testing.assert_allclose(batch["advantages"], [row.advantage for row in rows], rtol=1e-6)
        for row, ids, mask in zip(
            rows, batch["completion_ids"], batch["completion_mask"], strict=True
        ):
            length = len(row.response.tokens)
            assert ids[:length].tolist() == row.response.tokens
            assert mask.sum() == (length if row.counts else 0)
        assert batch["num_items_in_batch"] == batch["completion_mask"].sum()
    assert {row.counts for rows in seen.rows for row in rows} == {True, False}

    refilled = AdaptiveSampling(zero_variance="refill", refills=20)
    trainer = make_trainer(refilled, rewards=correct_if_even)
    seen = watch(trainer)
    trainer.train()
    assert all(row.counts for rows in seen.rows for row in rows)
    assert all(len(pools) > PROMPTS for pools in seen.pools)


def test_prompts_without_signal_change_nothing(make_trainer):
    """Every reward is 0: the loss is 0, and so is the gradient (no weight decay is set)."""
    trainer = make_trainer(rewards=lambda completions, **others: [0.0] * len(completions))
    before = weights_of(trainer)
    trainer.train()
    assert logged(trainer, "loss") == [0.0, 0.0]
    assert all(torch.equal(value, before[name]) for name, value in weights_of(trainer).items())


WAYS = {
    "refill": AdaptiveSampling(zero_variance="refill", engine="trl"),
    "allocation": AdaptiveSampling(allocation=rw.Estimated(mean_draws=4, maximum=8)),
    "pilot": AdaptiveSampling(allocation=rw.GVM(mean_draws=4, pilot=4, maximum=8)),
    "positives": AdaptiveSampling(strategy="positives", objective="reward"),
    "unbiased": AdaptiveSampling(objective="log", estimates="unbiased"),
    "giving up": AdaptiveSampling(exit_rule=rw.Balanced(2, 2), give_up_below=0.5),
    "curriculum": AdaptiveSampling(prompt_sampler=partial(rw.Curriculum, levels=[1, 5] * 12)),
    "posterior": AdaptiveSampling(prompt_sampler=partial(rw.Posterior, visits=9)),
}
PARTS = {"per_device_train_batch_size": 4}
ALL_LINEAR = LoraConfig(r=4, target_modules="all-linear")
SETTINGS = {
    "accumulation": {**PARTS, "gradient_accumulation_steps": 4},
    "iterations": {"num_iterations": 2, "max_steps": 4},
    "several updates of a batch": {**PARTS, "steps_per_generation": 4, "max_steps": 8},
    "checkpointing": {"gradient_checkpointing": True},
    "reference model": {"beta": 0.04, "given": {"peft_config": LoraConfig(r=4)}},
    "adapters": {"given": {"peft_config": ALL_LINEAR}},
    "top_p": {"top_p": 0.9},
    "masking cut responses": {"mask_truncated_completions": True, "max_completion_length": 6},
    "sequence ratios": {"importance_sampling_level": "sequence", "loss_type": "grpo"},
}


@pytest.mark.parametrize("name", [*WAYS, *SETTINGS])
def test_every_way_of_sampling_and_trl_s_settings_train(make_trainer, name):
    trainer = make_trainer(WAYS.get(name), **SETTINGS.get(name, {}))
    trained = {n for n, p in trainer.model.named_parameters() if p.requires_grad}
    seen, before = watch(trainer), weights_of(trainer)
    trainer.train()
    assert trainer.sampling_steps == 2
    assert all(math.isfinite(loss) for loss in logged(trainer, "loss"))
    assert bool(logged(trainer, "rollwise/entropy")) == (name not in ("refill", "top_p"))
    assert all(len(rows) == PROMPTS * GROUP for rows in seen.rows)
    changed = {n for n, value in weights_of(trainer).items() if not torch.equal(value, before[n])}
    assert changed
    assert "lm_head.weight" in changed or changed <= trained


def test_rewards_are_weighted_sums_and_every_draw_is_counted(make_trainer):
    graded = []

    def sometimes(completions, **others):
        graded.extend(completions)
        return [None if len(text) % 2 else 1.0 for text in completions]

    trainer = make_trainer(rewards=[is_correct, sometimes], reward_weights=[1.0, 0.25])
    assert isinstance(trainer._engine._engine, TransformersEngine)
    seen = watch(trainer)
    trainer.train()
    assert sum(logged(trainer, "rollwise/draws")) == len(graded) > 2 * PROMPTS * GROUP
    assert logged(trainer, "rollwise/prompts") == [PROMPTS, PROMPTS]
    assert all(value > 0 for value in logged(trainer, "rollwise/seconds/sampling"))
    pools = [pool for by_key in seen.pools for pool in by_key.values()]
    totals = [(r.text, t) for p in pools for r, t in zip(p.responses, p.rewards, strict=True)]
    assert {total for _, total in totals} <= {0.0, 0.25, 1.0, 1.25}
    assert all(total % 1.0 == (0.25 if len(text) % 2 == 0 else 0.0) for text, total in totals)
    assert len(logged(trainer, "rewards/sometimes/mean")) == 2


def test_responses_on_which_all_functions_abstain_are_left_out(make_trainer):
    def judge(completions, **others):
        return [None if i % GROUP == 3 else float(i % GROUP == 0) for i in range(len(completions))]

    every = {"strategy": "all", "zero_variance": "keep", "engine": "trl", "objective": "grpo"}
    groups = {"exit_rule": rw.FixedCount(GROUP), "schedule": rw.Rounds(GROUP, rounds=1)}
    trainer = make_trainer(AdaptiveSampling(**every, **groups), rewards=judge, max_steps=1)
    seen = watch(trainer)
    trainer.train()
    for start in range(0, PROMPTS * GROUP, GROUP):
        group = seen.rows[0][start : start + GROUP]
        assert [row.counts for row in group] == [True] * 3 + [False]
        np.testing.assert_allclose([row.advantage for row in group], [2 / 3, -1 / 3, -1 / 3, 0])
    assert logged(trainer, "rollwise/lost_draws") == [PROMPTS]
    assert logged(trainer, "rollwise/draws") == [PROMPTS * (GROUP - 1)], "none is drawn again"
    with pytest.raises(RuntimeError, match=r"no response to any of .* abstained \(None\) on all"):
        make_trainer(rewards=lambda completions, **others: [None] * len(completions)).train()


def test_what_reward_functions_log_stays_with_its_response(make_trainer):
    def reward(completions, answer, log_extra, **others):
        log_extra("wanted", list(answer))
        log_extra("said", list(completions))
        return is_correct(completions, answer)

    trainer = make_trainer(rewards=reward, max_steps=1)
    trainer.train()
    logs, answers = trainer._logs, {p.messages[0]["content"]: p.answer for p in PROBLEMS}
    assert list(logs["extra"]["said"]) == list(logs["completion"])
    assert list(logs["extra"]["wanted"]) == [answers[prompt] for prompt in logs["prompt"]]


TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "?",
    "fields": {
        "reasoning_content": {"open_pattern": r"\A", "close_pattern": "=", "content": "text"},
        "content": {"close_pattern": r"\Z", "content": "text"},
    },
}


@pytest.mark.parametrize("template", [None, TEMPLATE], ids=["plain", "template"])
def test_conversations_are_prompts_and_a_template_parses_responses(make_trainer, template):
    seen = []

    def reward(prompts, completions, answer, **others):
        seen.extend(zip(prompts, completions, strict=True))
        return is_correct(completions, answer)

    tokenizer = load_model(ModelSettings(device="cpu"))[1]
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.response_template = template
    rows = [{"prompt": list(p.messages), "answer": p.answer} for p in PROBLEMS]
    given = {"train_dataset": Dataset.from_list(rows), "processing_class": tokenizer}
    trainer = make_trainer(rewards=reward, given=given, max_steps=1)
    trainer.train()
    assert {(p[-1]["role"], c[0]["role"]) for p, c in seen} == {("user", "assistant")}
    assert any("reasoning_content" in c[0] for _, c in seen) == (template is not None)
    assert any("=" in c[0].get("content", "") for _, c in seen) == (template is None)
    assert logged(trainer, "rollwise/reward")[0] > 0


def test_evaluation_is_trl_s_own(make_trainer):
    trainer = make_trainer(per_device_eval_batch_size=8)
    trainer.evaluate(trainer.train_dataset.select(range(4)))
    assert trainer.sampling_steps == 0
    assert 0 <= logged(trainer, "eval_reward")[0] <= 1
    trainer.train()
    assert trainer.sampling_steps == 2


def test_going_on_from_a_checkpoint_equals_never_having_stopped(make_trainer, tmp_path):
    sampling = AdaptiveSampling(prompt_sampler=rw.CDAS)
    options = {"lr_scheduler_type": "constant", "save_strategy": "steps", "save_steps": 2}
    whole = make_trainer(sampling, folder=tmp_path / "whole", max_steps=4, **options)
    seen = watch(whole)
    whole.train()
    drawn = [[row.draw for row in rows] for rows in seen.rows]
    checkpoint = tmp_path / "whole" / "checkpoint-2"
    resumed = make_trainer(sampling, folder=tmp_path / "resumed", max_steps=4, **options)
    seen = watch(resumed)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert resumed.sampling_steps == 4
    assert [[row.draw for row in rows] for rows in seen.rows] == drawn[2:]
    for name, value in weights_of(resumed).items():
        torch.testing.assert_close(value, whole.model.state_dict()[name])
    np.testing.assert_array_equal(
        resumed.prompt_sampler.difficulty, whole.prompt_sampler.difficulty
    )
    (checkpoint / "rollwise").rename(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"cannot resume from .*checkpoint-2/rollwise"):
        resumed.train(resume_from_checkpoint=str(checkpoint))


@pytest.mark.parametrize(
    ("per_generation", "accumulation"), [(1, 1), (2, 1), (2, 2), (1, 2), (2, 4), (4, 3)]
)
def test_training_ends_once_it_has_learned_from_every_prompt(
    make_trainer, per_generation, accumulation
):
    """Where updates and generation steps do not fit, the last update begun is left out."""
    sampling = AdaptiveSampling(prompt_sampler=partial(rw.Uniform, visits=1))
    trainer = make_trainer(
        sampling,
        max_steps=20,
        per_device_train_batch_size=PROMPTS * GROUP // per_generation,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=per_generation,
    )
    trained = keep(trainer, "training_step")
    trainer.train()
    assert trainer.sampling_steps == len(PROBLEMS) / PROMPTS
    assert len(trained) == per_generation * trainer.sampling_steps
    assert trainer.state.global_step == len(trained) // accumulation


class FakeVLLM:
    """Draws as TRL's vLLM backend does: the first token of the prompt, and the end."""

    def __init__(self, trainer):
        self.trainer, self.synced, self.rows = trainer, [], 0

    def sync_weights(self):
        self.synced.append(self.trainer.state.global_step)

    def generate(self, prompts, images, num_generations, profiler=None):
        sent = prompts[::num_generations]
        tokens = [[prompt[0], 1] for prompt in sent for _ in range(num_generations)]
        self.rows += len(tokens)
        return prompts, tokens, [[[-1.5], [None]] for _ in tokens], None


def test_vllm_draws_one_response_a_row_with_fresh_weights(make_trainer):
    """The server is sent `prompts[::num_generations]`, so any number but 1 would skip rows."""
    trainer = make_trainer(AdaptiveSampling(schedule=rw.Rounds(size=3, rounds=4)))
    trainer.use_vllm, trainer._last_loaded_step = True, -1
    trainer.vllm_generation = FakeVLLM(trainer)
    trainer._engine._engine = TRLEngine(trainer, None)
    seen = watch(trainer)
    trainer.train()
    assert trainer.vllm_generation.synced == [0, 1]
    assert trainer.vllm_generation.rows == sum(logged(trainer, "rollwise/draws"))
    for rows, batch in zip(seen.rows, seen.batches, strict=True):
        prompts = [trainer.train_dataset[row.draw.key]["prompt"] for row in rows]
        firsts = [[trainer.processing_class(prompt)["input_ids"][0], 1] for prompt in prompts]
        assert [row.response.tokens for row in rows] == firsts
        assert batch["completion_ids"].tolist() == [row.response.tokens for row in rows]
        assert torch.equal(batch["sampling_per_token_logps"][:, 0], torch.full((16,), -1.5))


def test_a_template_whose_turns_end_otherwise_than_trl_s_responses_is_said(make_trainer, caplog):
    trainer = make_trainer()
    tokenizer = trainer.processing_class
    tokenizer.add_tokens(["<|im_end|>"])
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    TRLEngine(trainer, None)
    assert "closes turns with '<|im_end|>': set `processing_class.eos_token`" in caplog.text
