"""A tiny model and the tokenizer of the built-in one."""

import pytest
import torch
from tiny_models import make_model
from transformers import PreTrainedTokenizerFast

from rollwise.models.loading import model_path

# The models here are so small that a second thread for a matrix product only waits: on busy cores
# ten times as long as the product takes.
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def tokenizer():
    return PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))
