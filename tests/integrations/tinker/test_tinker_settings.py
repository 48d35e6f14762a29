"""Tinker's settings: a section `backend` of its own, errors, and the page with an example."""

import pytest

from rollwise.config import make_config
from rollwise.errors import ConfigError

TINKER = {"type": "tinker"}


def test_at_tinker_adapters_of_rank_32_are_the_default():
    assert make_config({"backend": TINKER}).model.lora_rank == 32
    assert make_config({"backend": TINKER, "model": {"lora_rank": 4}}).model.lora_rank == 4
    assert make_config().model.lora_rank == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": "clipped"}, "`backend.loss` must be `ppo` or `importance_sampling`; it is"),
        ({"draw_timeout": 0}, "`backend.draw_timeout` must be above 0; it is 0"),
        ({"type": "tinkr"}, "`backend.type` must be one of `local`, `tinker`, or"),
    ],
)
def test_an_error_names_the_setting_and_what_it_is(given, said):
    with pytest.raises(ConfigError) as error:
        make_config({"backend": TINKER | given})
    assert said in str(error.value)
