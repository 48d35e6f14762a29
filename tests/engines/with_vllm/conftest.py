"""An engine of vLLM on the CPU that all tests here share, over random models of 17 tokens."""

import pytest
from tiny_models import make_model, make_tokenizer
from transformers import Qwen2ForCausalLM
from vllm_on_cpu import CONTEXT, make_engine


@pytest.fixture(scope="package", autouse=True)
def environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="package")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="package")
def folders(tmp_path_factory, tokenizer):
    """Makes the folder of a random model of 17 tokens, by its seed; heads are of 32."""

    def make(seed):
        folder = tmp_path_factory.mktemp("model")
        make_model(seed=seed, context=CONTEXT).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return [make(seed) for seed in range(2)]


@pytest.fixture(scope="package")
def models(folders):
    return [Qwen2ForCausalLM.from_pretrained(folder) for folder in folders]


@pytest.fixture(scope="package")
def shared_engine(folders, tokenizer):
    with make_engine(folders[0], tokenizer) as engine:
        yield engine
    engine.close()  # once more does no harm


@pytest.fixture
def engine(shared_engine, monkeypatch):
    """One engine for all tests; what a test sets on it is taken back."""
    for name in ("max_new_tokens", "temperature", "end_tokens", "settings", "draw_timeout"):
        monkeypatch.setattr(shared_engine, name, getattr(shared_engine, name))
    yield shared_engine
