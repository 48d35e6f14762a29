"""The data source and the hooks, called as slime 0.3.1 calls them (see `slime_driver`)."""

import asyncio
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from slime_driver import Manager, Sample, answer, arguments, roll_out, with_settings

from rollwise.config.step import make_sampler, step_recipe
from rollwise.errors import ConfigError, RunError
from rollwise.integrations.slime.settings import read_settings
from rollwise.step import Response, RolloutCost, take_step

GROUPS = {"n_samples_per_prompt": 4}
OVER = {"over_sampling_batch_size": 16}
PARTIAL = OVER | {"partial_rollout": True}

HALF = 0.5 / (0.5**0.5 + 1e-4)
"""GRPO's advantage of the correct one of two responses: its distance to the mean, over the standard
deviation."""


def expected(source):
    return source.sampler.expected_pass_rates(range(len(source)))


def finished(group, rewards):
    for sample, reward in zip(group, rewards, strict=True):
        sample.tokens, sample.response_length = [0, 1], 1
        sample.rollout_log_probs, sample.reward = [-0.5], reward
        sample.status = Sample.Status.COMPLETED
    return group


@pytest.mark.parametrize("n", [1, 3])
def test_advantages_and_what_the_sampler_learns_are_those_of_a_step_of_ours(n, tmp_path):
    text = '[prompts]\ntype = "worth"\n[advantage]\nobjective = "linear"\nbaseline = "belief"\n'
    args = with_settings(
        tmp_path, text + "[step]\nnormalize_gradients = true\n", n_samples_per_prompt=n
    )
    manager = Manager(args)
    config = read_settings(args)
    recipe, sampler = step_recipe(config), make_sampler(config, range(64), {})
    for number in range(3):
        rows = manager.generate(number)
        asked, indices, advantages = zip(*rows, strict=True)
        index = iter(indices)

        def roll_out_again(session, index=index):
            for draw in session.next_draws():
                sample = Sample(index=next(index), prompt=f"prompt {draw.key}")
                asyncio.run(answer(sample, SimpleNamespace(aborted=False)))
                logprobs = np.array(sample.rollout_log_probs, np.float32)
                session.record(draw, sample.reward, Response(sample.tokens[3:], logprobs))
            return RolloutCost()

        step = take_step(recipe, sampler, roll_out_again, number + 1)
        assert list(asked[::n]) == [f"prompt {group.pool.key}" for group in step.groups]
        wanted = np.concatenate([group.advantages for group in step.groups])
        assert advantages == pytest.approx(wanted, rel=1e-9)
        assert np.array_equal(expected(manager.data_source), sampler.expected_pass_rates(range(64)))
    assert manager.data_source.metrics["draws"] == 8 * n


@pytest.mark.parametrize("changed", [{}, GROUPS, OVER], ids=["single", "groups", "over-sampling"])
def test_a_resumed_run_equals_one_that_never_stopped(changed, tmp_path):
    whole = Manager(arguments(**changed)).train(6)
    args = arguments(save=str(tmp_path), load=str(tmp_path), **changed)
    assert Manager(args).train(4, 0, 2) == whole[:4]
    written = sorted(path.name for path in (tmp_path / "rollout/rollwise_2").iterdir())
    assert written == ["checksums.txt", "sampler.safetensors", "state.json"]
    copied = pickle.loads(pickle.dumps(args))  # as slime sends them to Ray's processes
    assert Manager(copied).train(6, 3) == whole[3:]


def test_what_was_broken_off_comes_first_and_is_not_asked_for_meanwhile(tmp_path):
    args = arguments(save=str(tmp_path), load=str(tmp_path), **PARTIAL)
    source = Manager(args).data_source
    data = roll_out(args, 0, source)
    waiting = [group[0].prompt for group in source._own.buffer]
    assert len(waiting) == source.get_buffer_length() > 0
    source.learn([sample for group in data for sample in group])
    source.save(0)
    given = [group[0].prompt for group in source.get_samples(16)]
    assert given[: len(waiting)] == waiting
    assert len(set(given)) == 16

    resumed = Manager(args).data_source
    resumed.load(0)
    assert [group[0].prompt for group in resumed.get_samples(16)] == given
    assert resumed.get_buffer_length() == 0


def test_broken_off_responses_are_continued_and_each_prompt_is_learned_from_once():
    manager = Manager(arguments(**PARTIAL))
    drawn = [index for rollout in manager.train(6) for _, index, _ in rollout]
    assert len(set(drawn)) == len(drawn) == 48
    assert sorted(drawn)[-1] < 80  # without the buffer, 96 would have been begun


def test_acc_of_a_reward_that_is_a_dictionary_teaches_the_sampler():
    source = Manager(arguments(n_samples_per_prompt=3, reward_key="total")).data_source
    [group] = source.get_samples(1)
    finished(group, [{"total": t, "acc": a} for t, a in ((0.2, True), (0.9, False), (0.1, False))])
    raw, _ = source.learn(group)
    assert raw == [0.2, 0.9, 0.1]
    assert source.metrics["rewards"]["acc"] == pytest.approx(1 / 3)


def test_failed_responses_leave_the_loss_and_teach_the_sampler_nothing():
    source = Manager(arguments(n_samples_per_prompt=3)).data_source
    before = source.sampler.pass_rate_priors(range(64))
    whole, part, lost = source.get_samples(3)
    finished(whole, [1.0, 0.0, 0.0])
    finished(part, [1.0, None, 0.0])
    finished(lost, [1.0, 1.0, 1.0])
    for sample in lost:
        sample.status = Sample.Status.ABORTED
    raw, advantages = source.learn([*whole, *part, *lost])
    assert raw == [1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert [sample.remove_sample for sample in part + lost] == [0, 1, 0, 1, 1, 1]
    assert advantages[3:6] == pytest.approx([HALF, 0, -HALF], rel=1e-9)
    assert advantages[6:] == [0, 0, 0]
    keys = [sample.metadata["rollwise_prompt"] for sample in (whole[0], part[0], lost[0])]
    learned = (source.sampler.pass_rate_priors(range(64)) != before).any(axis=1)
    assert np.flatnonzero(learned).tolist() == sorted(keys[:2])
    assert source.metrics["lost_draws"] == 4


def test_one_thread_at_a_time_uses_the_sampler():
    source, busy = Manager(arguments()).data_source, threading.Lock()
    ask = source.sampler.ask

    def slow_ask(*arguments, **options):
        assert busy.acquire(blocking=False)
        time.sleep(0.01)
        busy.release()
        return ask(*arguments, **options)

    source.sampler.ask = slow_ask
    with ThreadPoolExecutor(8) as threads:
        asked = [group[0].prompt for [group] in threads.map(source.get_samples, [1] * 16)]
    assert len(set(asked)) == 16


def test_a_small_data_set_is_asked_again_rather_than_waited_for():
    manager = Manager(arguments(rows=[{}] * 9, **OVER))
    assert list(map(len, manager.train(3))) == [8, 8, 8]
    assert len(manager.data_source.get_samples(40)) == 40


def test_two_groups_of_one_prompt_in_a_rollout_are_one():
    source = Manager(arguments(n_samples_per_prompt=2, rows=[{}] * 8)).data_source
    groups = {}
    for group in source.get_samples(16):
        groups.setdefault(group[0].prompt, []).append(group)
    first, again = groups["prompt 3"]
    _, advantages = source.learn(finished(first, [1.0, 1.0]) + finished(again, [0.0, 0.0]))
    larger = 0.5 / ((1 / 3) ** 0.5 + 1e-4)
    assert advantages == pytest.approx([larger, larger, -larger, -larger], rel=1e-9)


def test_masked_tokens_and_unknown_probabilities():
    source = Manager(arguments()).data_source
    group = source.get_samples(2)
    samples = [finished(one, [1.0])[0] for one in group]
    samples[0].tokens, samples[0].response_length = [9, 1, 2, 3], 3
    samples[0].loss_mask, samples[0].rollout_log_probs = [1, 0, 1], [-1.0, 0.0, -2.0]
    source.learn(samples)
    assert source.metrics["tokens"] == 3
    assert source.metrics["entropy"] == pytest.approx(3.5 / 3, rel=1e-6)


def test_features_stand_in_the_metadata(tmp_path):
    text = '[belief]\nfeatures = ["level", "pass_rate", "mine"]\n'
    rows = [{"level": i % 2, "pass_rate": i / 64, "drawn": 8, "mine": f"{i}"} for i in range(64)]
    source = Manager(with_settings(tmp_path, text, rows=rows)).data_source
    assert source.sampler.belief.features.columns == "level,pass_rate,mine"
    assert np.corrcoef(expected(source), np.arange(64))[0, 1] > 0.9
    with pytest.raises(ConfigError, match="names other; the data has pass_rate, level"):
        Manager(with_settings(tmp_path, '[belief]\nfeatures = ["other"]\n', rows=rows))


def test_samples_that_cannot_be_placed_are_refused():
    source = Manager(arguments()).data_source
    [sample] = finished(source.get_samples(1)[0], [1.0])
    sample.metadata = {}
    with pytest.raises(RunError, match="sample 0 has no metadata\\['rollwise_prompt'\\]"):
        source.learn([sample])


def test_a_state_that_is_missing_or_of_other_prompts_is_refused(tmp_path):
    Manager(arguments(save=str(tmp_path))).train(1, 0, 0)
    other = Manager(arguments(load=str(tmp_path), rows=[{}] * 65)).data_source
    for rollout, message in ((0, "its prompts is 64, not 65"), (1, "cannot resume.*rollwise_1")):
        with pytest.raises(RunError, match=message):
            other.load(rollout)


def test_the_groups_that_are_drawn_do_not_share_what_they_hold():
    source = Manager(arguments(**GROUPS)).data_source
    [group] = source.get_samples(1)
    group[0].metadata["seen"] = True
    assert ["seen" in sample.metadata for sample in group] == [True, False, False, False]
