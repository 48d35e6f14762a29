"""The settings file, slime's arguments that exclude it, and the page that explains both."""

import re
import tomllib

import pytest
from slime_driver import HOOKS, Manager, arguments, load_function, with_settings

from rollwise.errors import ConfigError
from rollwise.integrations.slime import post_process_rewards
from rollwise.integrations.slime.settings import read_settings


def test_without_a_file_responses_are_compared_with_a_belief_or_in_grpo_s_groups():
    config = read_settings(arguments())
    assert (config.prompts.type, config.prompts.batch_size) == ("posterior", 8)
    assert (config.exit.samples, config.group.size, config.group.strategy) == (1, 1, "all")
    assert config.advantage.baseline == "belief" and config.step.normalize_gradients
    assert (config.seed, config.learner.average) == (42, "responses")
    config = read_settings(arguments(n_samples_per_prompt=4, calculate_per_token_loss=True))
    assert (config.prompts.type, config.advantage.objective) == ("uniform", "grpo")
    assert (config.exit.samples, config.group.size, config.learner.average) == (4, 4, "tokens")
    assert config.advantage.scale_by_std


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("steps = 3\n", "`steps`"),
        ("[exit]\nsamples = 4\n", "`exit.samples`"),
        ('[grading]\ntype = "math"\n', "`grading.type`"),
        ("[prompts]\nbatch_size = 32\n", r"rollout_batch_size` must be 32.*it is 8"),
        ('[prompts]\ntype = "nothing"\n', "nothing"),
    ],
)
def test_settings_that_slime_decides_are_refused_by_name(text, named, tmp_path):
    with pytest.raises(ConfigError, match=named):
        read_settings(with_settings(tmp_path, text))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"custom_reward_post_process_path": None}, f"must be '{HOOKS}.post_process_rewards'"),
        ({"custom_convert_samples_to_train_data_path": "a.b"}, "must be unset.*it is 'a.b'"),
        ({"custom_advantage_function_path": "a.b"}, "must be unset.*it is 'a.b'"),
        ({"advantage_estimator": "reinforce_plus_plus"}, "'grpo' or 'gspo' or 'cispo'"),
        ({"normalize_advantages": True}, "`step.normalize_advantages` does that; it is True"),
        ({"rollout_global_dataset": False}, "neither saves nor loads; it is False"),
        ({"load_debug_rollout_data": "a.pt"}, "recorded rollouts"),
        ({"prompt_data": None}, "`prompt_data` must name the data set"),
        ({"dynamic_sampling_filter_path": "a.b"}, "would not learn what it leaves out"),
        (
            {"grpo_std_normalization": False, "n_samples_per_prompt": 4},
            "`grpo_std_normalization` must be True",
        ),
        ({"rows": [{}] * 7}, "`prompts`: batch_size must be at most the number of prompts"),
    ],
)
def test_arguments_that_cannot_be_combined_are_refused_by_name(changed, message):
    with pytest.raises(ConfigError, match=message):
        Manager(arguments(**changed))


def test_the_hook_wants_the_source():
    with pytest.raises(ConfigError, match=f"`data_source_path` must be {HOOKS}.PromptSource"):
        post_process_rewards(arguments(), [])


def test_the_page_names_the_hooks_and_its_settings_are_valid(root, tmp_path):
    page = (root / "docs/slime.md").read_text()
    flags = dict(re.findall(rf"^ +--([\w-]+-path) ({HOOKS}\.\w+)", page, re.MULTILINE))
    assert len(flags) == 2
    for flag, path in flags.items():
        assert callable(load_function(path))
        assert flag.replace("-", "_") in vars(arguments())
    for text in re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        samples = 1 if "belief" in tomllib.loads(text) else 4
        read_settings(with_settings(tmp_path, text, n_samples_per_prompt=samples))
