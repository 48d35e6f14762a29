"""Configurations of published models, as far as tests need them."""

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "num_hidden_layers": 28,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
"""Of the `config.json` of Qwen2.5-Math-1.5B."""
