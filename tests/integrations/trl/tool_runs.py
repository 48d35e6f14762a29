"""A tiny random model that calls tools, by a chat template that TRL can parse."""

import torch
from datasets import Dataset
from tiny_runs import make_arguments
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rollwise.integrations.trl import AdaptiveGRPOTrainer

WORDS = ["<pad>", "<end>", "<user>", "<assistant>", "<tool>", "<call>", "?", *"0123456789"]
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<call>{{ call.function | tojson }}{% endfor %}<end>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
PARSING = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<assistant>",
    "fields": {
        "tool_calls": {
            "open": "<call>",
            "close_pattern": "(?=[^0-9])",
            "repeats": True,
            "content": "json",
            "transform": {
                "type": "function",
                "function": {"name": "double", "arguments": {"number": "{content}"}},
            },
        },
        "content": {"close_pattern": "<end>", "content": "text"},
    },
}
"""`<call>12` calls `double(number=12)`."""

PROMPTS, GROUP = 4, 4


def double(number: int) -> int:
    """Double a number.

    Args:
        number: What is doubled; below 1000.
    """
    if number >= 1000:
        raise ValueError("too large")
    return 2 * number


def told(completions, **others):
    """1.0 where a tool has answered."""
    return [float(any(m["role"] == "tool" for m in messages)) for messages in completions]


def make_tokenizer():
    """One token a character, and one for each role."""
    words = {word: place for place, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"<[a-z]+>|[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", chat_template=TEMPLATE
    )
    made.response_template = PARSING
    return made


def make_model():
    """A random one, nearly uniform: one turn in two or three calls a tool."""
    torch.manual_seed(0)
    shape = {
        "vocab_size": len(WORDS),
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": None,
    }
    return Qwen2ForCausalLM(Qwen2Config(**shape))


def build_with_tools(
    folder, sampling=None, trainer=AdaptiveGRPOTrainer, rows=None, given=None, **changed
):
    """Make a trainer whose model can call `double`; `given` replaces the tool."""
    if rows is None:
        rows = [{"prompt": [{"role": "user", "content": str(n)}]} for n in range(12)]
    options = {
        "model": make_model(),
        "reward_funcs": told,
        "train_dataset": Dataset.from_list(rows),
        "processing_class": make_tokenizer(),
        "args": make_arguments(
            folder,
            **{"per_device_train_batch_size": PROMPTS * GROUP, "max_completion_length": 32}
            | changed,
        ),
        **({"tools": [double]} if given is None else given),
    }
    own = {"sampling": sampling} if trainer is AdaptiveGRPOTrainer else {}
    return trainer(**options | own)
