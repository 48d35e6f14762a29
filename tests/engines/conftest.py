"""A tiny model and the tokenizer of the built-in one."""

import pytest
from tiny_models import make_model
from transformers import PreTrainedTokenizerFast

from rollwise.training.model import model_path


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def tokenizer():
    return PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))
