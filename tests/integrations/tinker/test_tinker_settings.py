"""Tinker's settings: a section `backend` of its own, the former table `[tinker]`, and errors."""

import subprocess
import sys
import warnings

import pytest

from rollwise.cli import main
from rollwise.config import OldSetting, is_recorded_by, make_config
from rollwise.config.train import TrainConfig
from rollwise.errors import ConfigError

TINKER = {"type": "tinker"}


def test_at_tinker_adapters_of_rank_32_are_the_default():
    assert make_config({"backend": TINKER}).model.lora_rank == 32
    assert make_config({"backend": TINKER, "model": {"lora_rank": 4}}).model.lora_rank == 4
    assert make_config().model.lora_rank == 0


def test_only_tinker_draws_ahead():
    assert make_config({"backend": TINKER | {"max_steps_off_policy": 3}}).steps_ahead == 3
    assert make_config({"backend": TINKER}).steps_ahead == make_config().steps_ahead == 0


def test_the_former_table_goes_into_the_backend():
    old = {"backend": TINKER, "tinker": {"loss": "importance_sampling", "draw_timeout": 9.0}}
    with pytest.warns(OldSetting, match=r"\[tinker\] is now part of \[backend\]"):
        config = make_config(old)
    assert (config.backend.loss, config.backend.draw_timeout) == ("importance_sampling", 9.0)
    with pytest.warns(OldSetting):  # the new place wins over the old one
        assert make_config(old | {"backend": TINKER | {"loss": "ppo"}}).backend.loss == "ppo"
    assert make_config({"tinker": {"loss": "ppo"}}) == make_config()  # it had no effect before


def test_runs_of_the_release_before_are_read():
    """It recorded the table `tinker` in every run, whatever the backend."""
    for backend in ("local", "tinker"):
        now = make_config({"backend": {"type": backend}})
        table = make_config({"backend": TINKER}).backend.model_dump(exclude={"type"})
        recorded = now.model_dump(mode="json") | {"backend": {"type": backend}, "tinker": table}
        assert is_recorded_by(TrainConfig, recorded)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OldSetting)
            assert make_config(recorded) == now


def test_a_former_option_is_taken_with_a_plain_warning(capsys, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "rollwise.commands.train.train", lambda layers, *rest: seen.append(make_config(*layers))
    )
    main(["train", "--backend.type", "tinker", "--tinker.loss", "importance_sampling"])
    assert seen[0].backend.loss == "importance_sampling"
    assert capsys.readouterr().err == (
        "rollwise: the table [tinker] is now part of [backend]: write its settings there\n"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": "clipped"}, "`backend.loss`: should be `ppo` or `importance_sampling`; it is"),
        ({"draw_timeout": 0}, "`backend`: draw_timeout must be above 0, got 0"),
        ({"draw_timeout": float("nan")}, "`backend`: draw_timeout must be above 0, got nan"),
        ({"max_steps_off_policy": -1}, "`backend`: max_steps_off_policy must be at least 0"),
        ({"base_modle": "m"}, "no setting `backend.base_modle`; did you mean `backend.base_model`"),
        ({"type": "tinkr"}, "`backend.type`: should be one of `local`, `tinker`, or"),
        ({"type": "local", "loss": "ppo"}, "`backend.loss` is not a setting of type `local`"),
    ],
)
def test_an_error_names_the_setting_and_what_it_is(given, said):
    with pytest.raises(ConfigError) as error:
        make_config({"backend": TINKER | given})
    assert said in str(error.value)


def test_listing_the_settings_loads_no_backend():
    code = (
        "import sys, rollwise.cli\n"
        "print([name for name in sys.modules if name == 'tinker'"
        " or name in ('rollwise.training.local', 'rollwise.training.run')"
        " or name.startswith('rollwise.integrations.tinker.')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['rollwise.integrations.tinker.settings']"
