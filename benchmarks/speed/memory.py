"""Memory: what is predicted for updates of models in real shapes, and what they take on a CPU.

Each case is a process of its own, in which the learner makes an update: random weights in the
shapes of Qwen2.5-0.5B and -1.5B with fewer layers, all 151,936 words, float32. The allocator of
the C library returns what is freed at once here (`MALLOC_MMAP_THRESHOLD_`); by itself it keeps up
to a fifth more.

    python benchmarks/speed/memory.py            # about 20 minutes of two cores, up to 20 GB
    python benchmarks/speed/memory.py --quick
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from measuring import arguments, print_table

SHAPES = {
    "0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
}
WORDS = 151_936

CASES = (
    # shape, layers, response tokens, recomputed, adapters' rank, threads
    ("0.5B", 2, 256, False, 0, 1),
    ("0.5B", 24, 1024, False, 0, 1),
    ("0.5B", 6, 256, False, 0, 2),
    ("1.5B", 2, 256, False, 0, 2),
    ("0.5B", 12, 1024, True, 32, 1),
    ("1.5B", 8, 1024, False, 32, 1),
    ("0.5B", 2, 4096, False, 0, 1),
    ("0.5B", 2, 4096, True, 0, 1),
    ("1.5B", 4, 256, True, 0, 1),
)


def measure(case: tuple[Any, ...]) -> tuple[float, float]:
    """Return what is predicted for updates, and the peak of this process, in GB."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    from rollwise.config import TrainConfig, make_settings
    from rollwise.grading.worker import peak_memory
    from rollwise.models.loading import add_adapters, recompute
    from rollwise.step import Example, Response
    from rollwise.training.learner import Learner
    from rollwise.training.memory import memory_of

    shape, layers, tokens, recomputed, rank, threads = case
    torch.set_num_threads(1)
    model_config = Qwen2Config(
        vocab_size=WORDS, num_hidden_layers=layers, tie_word_embeddings=True, **SHAPES[shape]
    )
    prompt = 64
    settings = {
        "model": {"gradient_checkpointing": recomputed, "lora_rank": rank},
        "learner": {"mini_batches": 1, "learning_rate": 1e-6},
        "engine": {"max_new_tokens": tokens},
        "data": {"max_prompt_tokens": prompt},
    }
    config = make_settings(TrainConfig, settings)
    need = memory_of(config, model_config, False, threads)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(model_config)
    model = model.to_empty(device="cpu")
    model.tie_weights()
    torch.manual_seed(0)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.02)
    frequencies = type(model.model.rotary_emb)(model_config)
    model.model.rotary_emb = frequencies
    model.generation_config = None
    if rank:
        model = add_adapters(model, config.model)
    recompute(model, config.model, False)
    learner = Learner(model.eval(), config.learner, threads=threads)
    count = max(1, config.learner.tokens_at_a_time(False) // (prompt + tokens))
    examples = [
        Example([1] * prompt, Response([2 + i] * tokens, [-11.9] * tokens), (-1.0) ** i)
        for i in range(2 * count * threads)
    ]
    learner.learn([Example([1], Response([2], [-11.9]), 1.0)])  # makes the optimizer's state
    learner.learn(examples)
    held = sum(need.held.values()) + sum(need.learning.values())
    return held / 1e9, peak_memory() / 1e9


def main() -> None:
    """Measure every case in a process of its own, and print a table."""
    parser = arguments(__doc__, "the two smallest cases")
    parser.add_argument("--case", type=json.loads, help="measure this one, in this process")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(tuple(options.case))))
        return
    rows = []
    for case in CASES[:1] if options.quick else CASES:
        command = [sys.executable, "-W", "ignore", __file__, "--case", json.dumps(case)]
        environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        predicted, peak = json.loads(done.stdout.splitlines()[-1])
        figures = f"{predicted:.2f}", f"{peak:.2f}", f"{predicted / peak:.3f}"
        rows.append([*map(str, case), *figures])
        print(*rows[-1], file=sys.stderr, flush=True)
    columns = ("shape", "layers", "response tokens", "recomputed", "rank", "threads")
    print_table("memory in GB", [*columns, "predicted", "peak", "ratio"], rows)


if __name__ == "__main__":
    main()
