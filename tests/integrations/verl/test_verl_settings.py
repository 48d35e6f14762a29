"""From one TOML file to verl's configuration, checked against verl's own schema."""

import copy
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("verl")

import pyarrow.parquet as pq
import verl.trainer.main_ppo
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from rollwise.cli import main
from rollwise.config import make_config, read_toml
from rollwise.errors import ConfigError
from rollwise.integrations.verl.overrides import overrides
from rollwise.integrations.verl.settings import (
    check,
    check_steps,
    read_settings,
    settings_of,
    train_config,
)

pytestmark = pytest.mark.verl

SCHEMA = Path(verl.trainer.main_ppo.__file__).parent / "config"
RECIPES = sorted((Path(__file__).parents[3] / "examples/verl").glob("*.toml"))
assert RECIPES, "no recipe was found"
FILES = Path("/data/train.parquet"), Path("/data/heldout.parquet")


def compose_verl(*layers):
    """verl's configuration from settings, by verl's schema: an unknown key is an error."""
    listed = overrides(*read_settings(layers), Path("/runs/x"), FILES)
    with initialize_config_dir(str(SCHEMA), version_base=None):
        return compose("ppo_trainer", overrides=listed), listed


def asynchronous(mode, **layers):
    own = {"actor_rollout_ref.rollout": {"nnodes": 1, "n_gpus_per_node": 8}}
    return {"verl": {"trainer.v1.trainer_mode": mode, **own}, **layers}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_valid_in_verls_own_schema(composed, recipe):
    config, listed = compose_verl(read_toml(recipe))
    validate_config(config, need_reference_policy(config), need_critic(config))
    for section in ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm"):
        omega_conf_to_dataclass(OmegaConf.select(config, section))
    check(config, settings_of(config))
    assert not need_critic(config)
    # `++` would add what verl does not know: ours must be in the schema, but for two.
    added = {item.split("=")[0] for item in listed if item.startswith("+")}
    ours = {key for key in added if not key.startswith(("++", "+rollwise."))}
    assert ours == {"+actor_rollout_ref.rollout.agent.agent_loop_manager_class"}
    for key in (item.split("=")[0] for item in listed if item.startswith("++")):
        node = composed["sync"]
        for name in key.removeprefix("++").split("."):
            assert name in node, f"{recipe.name}: verl has no {key}"
            node = node[name]


def test_the_papers_run_has_the_papers_hyperparameters():
    files = {recipe.stem: recipe for recipe in RECIPES}
    large, config = (
        compose_verl(read_toml(files[name]))[0] for name in ("several-nodes", "qwen2.5-math-1.5b")
    )
    assert (large.trainer.nnodes, config.trainer.nnodes) == (4, 1)
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert config.actor_rollout_ref.model.path == "Qwen/Qwen2.5-Math-1.5B"
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size, rollout.n) == (512, 128, 4)
    assert (actor.optim.lr, actor.optim.lr_warmup_steps, actor.optim.weight_decay) == (1e-6, 10, 0)
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.2, 0.28, 10.0)
    assert (actor.loss_agg_mode, actor.use_kl_loss, actor.entropy_coeff) == ("token-mean", False, 0)
    assert (actor.grad_clip, rollout.temperature, config.trainer.n_gpus_per_node) == (1.0, 1.0, 8)


def test_single_responses_are_the_default_as_they_are_of_train():
    config, _ = compose_verl({})
    own, usual = settings_of(config), make_config({})
    assert own.learner.old_logprobs == "learner"
    assert replace(own.learner, old_logprobs="engine") == usual.learner
    assert replace(own, learner=usual.learner) == usual
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size, rollout.n) == (256, 16, 1)
    assert actor.optim.lr_warmup_steps == 3  # verl's are steps, of 16 updates each
    assert actor.grad_clip == 0.03
    assert (actor.loss_agg_mode, rollout.calculate_log_probs) == ("seq-mean-token-mean", True)


def test_what_was_given_arrives_as_it_was_given():
    """Quotes, backslashes, braces and line ends go through Hydra's grammar unharmed."""
    given = {
        "method": "reinforce_ada",
        "steps": 7,
        "evaluation": {"every": 0},
        "checkpoint": {"every": 0},
        "data": {
            "instruction": "It's \\boxed{}, ${not} an interpolation: a=1, [b]\nnew \"line\" \\'"
        },
        "prompts": {"type": "cdas", "batch_size": 8, "visits": None},
        "records": {"trackers": ["wandb"]},
        "learner": {"learning_rate": 3e-5},
        "exit": {"give_up_below": 0.25},
    }
    config, _ = compose_verl(given)
    assert settings_of(config) == train_config(given)
    assert list(config.trainer.logger) == ["console", "wandb"]
    assert config.actor_rollout_ref.actor.optim.lr == 3e-5
    assert (config.trainer.test_freq, config.trainer.save_freq) == (7, 7)  # only at the end


@pytest.fixture(scope="module")
def composed():
    """verl's configuration of a run by the defaults, for two of its trainers."""
    return {mode: compose_verl(asynchronous(mode))[0] for mode in ("sync", "colocate_async")}


ROLLOUT, V1 = "actor_rollout_ref.rollout", "trainer.v1"
REFUSED = [
    ("sync", "reward.reward_model.enable", True, "a colocated reward model grades after sampling"),
    ("sync", f"{ROLLOUT}.n", 8, "`actor_rollout_ref.rollout.n` must be 1: .*it is 8"),
    ("sync", f"{ROLLOUT}.top_p", 0.9, "whole distribution"),
    ("sync", f"{ROLLOUT}.calculate_log_probs", False, "estimates gradients from them"),
    ("sync", "data.gen_batch_size", 1, "asked at once"),
    ("sync", "algorithm.adv_estimator", "grpo", "must be 'rollwise'"),
    ("sync", f"{V1}.sampler.custom_sampler.name", "Mine", "must be 'PoolReplayBuffer'"),
    ("sync", "rollwise.settings.allocation.type", "estimated", "`allocation.type` must be 'none'"),
    ("colocate_async", f"{V1}.sampler.max_off_policy_threshold", 1, "must be at least 2"),
    ("colocate_async", f"{V1}.colocate_async.num_warmup_batches", 5, "must be below .*, 5"),
    ("colocate_async", "algorithm.rollout_correction.rollout_is", None, "older weights"),
    ("colocate_async", f"{V1}.sampler.max_off_policy_strategy", "drop", "must be 'wait'"),
]


@pytest.mark.parametrize(("mode", "key", "value", "reason"), REFUSED, ids=lambda part: str(part))
def test_what_does_not_go_together_is_refused(composed, mode, key, value, reason):
    config = copy.deepcopy(composed[mode])
    OmegaConf.update(config, key, value, force_add=True)
    with pytest.raises(ConfigError, match=reason):
        check(config, settings_of(config), mode)


def test_steps_beyond_the_visits_are_refused():
    config = train_config({"prompts": {"visits": 2, "batch_size": 8}})
    check_steps(config, 5, problems=20)
    with pytest.raises(ConfigError, match=r"`steps` must be at most 5: .* it is 6"):
        check_steps(config, 6, problems=20)
    check_steps(train_config({"prompts": {"batch_size": 8}}), 6, problems=20)


# verl's asynchronous trainers.


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_an_asynchronous_trainer_is_chosen_by_verls_name(mode):
    oldest = {"verl": {"trainer.v1.sampler.max_off_policy_threshold": 3}}
    layers = asynchronous(mode, learner={"importance_cap": 3.0, "mini_batches": 4}), oldest
    config, listed = compose_verl(*layers)
    check(config, settings_of(config), mode)
    v1, correction = config.trainer.v1, config.algorithm.rollout_correction
    assert v1.trainer_mode == f"rollwise_{mode}"
    assert v1.sampler.custom_sampler.name == "AsyncPoolReplayBuffer"
    assert (v1.sampler.max_off_policy_threshold, v1.sampler.max_off_policy_strategy) == (3, "wait")
    assert (correction.rollout_is, correction.rollout_is_threshold) == ("token", 3.0)
    assert len({item.split("=")[0].lstrip("+") for item in listed}) == len(listed)
    if mode == "separate_async":  # engines get new weights after each step
        actor = config.actor_rollout_ref.actor
        step = v1.separate_async.parameter_sync_step * actor.ppo_mini_batch_size
        assert step == config.data.train_batch_size
        assert actor.optim.lr_warmup_steps == 40  # which are updates here
        assert config.actor_rollout_ref.rollout.checkpoint_engine.backend == "nccl"


def test_the_engines_log_probabilities_need_no_further_correction():
    config, _ = compose_verl(asynchronous("colocate_async", learner={"old_logprobs": "engine"}))
    check(config, settings_of(config), "colocate_async")
    assert config.algorithm.rollout_correction.rollout_is is None


@pytest.mark.parametrize(
    ("mode", "settings", "reason"),
    [
        ("colocate_async", ["--learner.importance_cap", "0"], "`learner.importance_cap` must be"),
        ("one_step_off", [], "must be one of .*'separate_async'.*it is 'one_step_off'"),
        ("sync", ["--group.zero_variance", "refill"], "variance` must be `drop` or `keep`"),
        ("sync", ["--learner.mini_batches", "3"], "must be a multiple of `learner.mini_batches`"),
    ],
)
def test_what_a_trainer_cannot_do_is_said_before_it_starts(
    tmp_path, capsys, mode, settings, reason
):
    file = tmp_path / "run.toml"
    file.write_text(f'[verl.trainer.v1]\ntrainer_mode = "{mode}"\n')
    assert main(["verl", str(file), "--output", str(tmp_path / "run"), "--print", *settings]) == 2
    assert re.search(reason, " ".join(capsys.readouterr().err.split()))
    assert not (tmp_path / "run").exists()


# The command.


def test_the_overrides_are_printed_for_a_shell(tmp_path):
    """Remarks on the data do not get among them."""
    problems, file = tmp_path / "problems.jsonl", tmp_path / "run.toml"
    rows = [{"problem": f"{i}+{i}?", "answer": str(2 * i)} for i in [*range(100), 7]]
    problems.write_text("\n".join(map(json.dumps, rows)))
    file.write_text("[prompts]\nbatch_size = 16\n[verl.trainer]\nnnodes = 2\n")
    command = [sys.executable, "-m", "rollwise", "verl", str(file), "--print", "--steps", "3"]
    command += ["--data.train", str(problems), "--output", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "1 duplicate" in done.stderr
    listed = [shlex.split(line)[0] for line in done.stdout.splitlines()]
    with initialize_config_dir(str(SCHEMA), version_base=None):
        config = compose("ppo_trainer", overrides=listed)
    check(config, settings_of(config))
    assert (config.trainer.nnodes, config.trainer.total_training_steps) == (2, 3)
    train = pq.read_table(config.data.train_files).to_pylist()
    heldout = pq.read_table(config.data.val_files).to_pylist()
    assert len(train) + len(heldout) == 100
    keys = [row["extra_info"]["key"] for row in train + heldout]
    assert len(set(keys)) == len(keys)
    assert train[0]["prompt"][0]["role"] == "user"
    assert train[0]["reward_model"]["ground_truth"]


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "metrics.jsonl").write_text("")
    assert main(["verl", "--output", str(tmp_path), "--print"]) == 2
    assert "holds a run; give another --output, or --resume" in capsys.readouterr().err
