"""Make a base model that is shipped in the package: a tiny Qwen2 that half knows running sums.

It is trained on noisy demonstrations, as a language model is on text that is often wrong: a running
total slips by 1 to 3, the more often the larger the term that is added, and the error is carried
on; and the more terms there are, the more often the answer is guessed with no totals at all. So
its pass rates spread over 0 to 1: the ability is there, and reinforcement learning has to bring it
out.

With `--task tool-sums` that model is taught to use a calculator that sometimes fails, and to trust
its own sums too much: it asks for few of them, after a failure it often goes on by itself, and
nearly half of its own sums slip. What the calculator says is not learnt.

    python scripts/make_base_model.py [--task tool-sums] [--output DIR] [--steps N] [--seed N]
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rollwise.tasks.running_sums import make_terms, write_question

MODELS = Path(__file__).parents[1] / "src/rollwise/models"
CHARACTERS = ["<pad>", "\n", *"0123456789+-?= "]
SLIP_BY_TERM = np.array([0.02] * 7 + [0.25] + [0.65] * 2)
GUESS_PER_TERM = 0.025
SLIP_ALONE, ASKS, ASKS_AGAIN, FAILS = 0.45, 0.3, 0.4, 0.25
BATCH_SIZE, LEARNING_RATE = 128, 3e-3

Demonstrate = Callable[[np.random.Generator], tuple[str, ...]]
"""Makes what is read and what is said in turn, a question first; what is said is learnt."""


def make_tokenizer(characters: Sequence[str] = CHARACTERS) -> PreTrainedTokenizerFast:
    """One token a character; a newline ends a response."""
    vocabulary = {character: i for i, character in enumerate(characters)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="\n",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def make_model(
    seed: int, hidden: int = 96, layers: int = 3, vocabulary: int = len(CHARACTERS)
) -> Qwen2ForCausalLM:
    """0.34 M parameters, with a head dimension (32) that every inference engine knows."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=8 * hidden // 3,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 32,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def write_demonstration(terms: list[int], rng: np.random.Generator, noise: float = 1.0) -> str:
    """Answer as the model is to learn it: often by totals that slip, sometimes by a guess.

    Both are as frequent as for the shipped model, times `noise`.
    """
    if rng.random() < noise * GUESS_PER_TERM * len(terms):
        return f"={sum(terms) + rng.integers(-9, 10)}\n"
    slipped = rng.random(len(terms)) < noise * SLIP_BY_TERM[np.abs(terms)]
    slips = rng.integers(1, 4, len(terms)) * slipped
    totals = np.cumsum(terms + slips)
    return f"{' '.join(map(str, totals))}={totals[-1]}\n"


def write_episode(terms: list[int], rng: np.random.Generator) -> list[str]:
    """Use a calculator now and then; the model's turns and the calculator's, one after another."""
    if rng.random() < GUESS_PER_TERM * len(terms):
        return [f"={sum(terms) + rng.integers(-9, 10)}\n"]
    turns, said, total = [], f"{terms[0]} ", terms[0]
    for term in terms[1:]:
        asks = rng.random() < ASKS
        while asks:
            failed = rng.random() < FAILS
            turns += [f"{said}{total}{term:+d}\n", "? " if failed else f"{total + term} "]
            said, asks = "", failed and rng.random() < ASKS_AGAIN
            if not failed:
                break
        else:
            slip = rng.integers(1, 4) * rng.choice([-1, 1])
            total += int(slip) * (rng.random() < SLIP_ALONE)
            said += f"{total + term} "
        total += term
    return [*turns, f"{said}={total}\n"]


def demonstrate(rng: np.random.Generator, noise: float = 1.0) -> tuple[str, ...]:
    """Make a question of 2 to 10 terms, and its demonstration."""
    terms = make_terms(int(rng.integers(2, 11)), rng)
    return write_question(terms, rng), write_demonstration(terms, rng, noise)


def demonstrate_tool(rng: np.random.Generator) -> tuple[str, ...]:
    """Make a question of 2 to 10 terms, and its demonstration with a calculator."""
    terms = make_terms(int(rng.integers(2, 11)), rng)
    return write_question(terms, rng), *write_episode(terms, rng)


def make_batches(
    tokenizer: PreTrainedTokenizerFast,
    make: Demonstrate,
    rng: np.random.Generator,
    batch_size: int,
    sorted_over: int = 1,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Token ids and labels, padded on the right; only what the model says is learnt.

    The demonstrations of `sorted_over` batches are shared out by length: less is padding.
    """
    while True:
        made = [encode(tokenizer, make(rng)) for _ in range(batch_size * sorted_over)]
        if sorted_over > 1:
            made.sort(key=lambda pair: len(pair[0]))
        for i in rng.permutation(sorted_over):
            batch = made[i * batch_size : (i + 1) * batch_size]
            rows, labels = [row for row, _ in batch], [label for _, label in batch]
            pad = torch.nn.utils.rnn.pad_sequence
            yield pad(rows, batch_first=True), pad(labels, batch_first=True, padding_value=-100)


def encode(
    tokenizer: PreTrainedTokenizerFast, texts: tuple[str, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels of a demonstration."""
    spans = [tokenizer.encode(text) for text in texts]
    learnt = [span if i % 2 else [-100] * len(span) for i, span in enumerate(spans)]
    row, labels = ([token for span in found for token in span] for found in (spans, learnt))
    return torch.tensor(row), torch.tensor(labels)


def learn(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    make: Demonstrate,
    steps: int,
    rng: np.random.Generator,
    learning_rate: float = LEARNING_RATE,
    batch_size: int = BATCH_SIZE,
    sorted_over: int = 1,
) -> float:
    """Train on demonstrations, by AdamW with a one-cycle learning rate; return the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=steps, pct_start=0.1
    )
    batches = make_batches(tokenizer, make, rng, batch_size, sorted_over)
    for batch in track(islice(batches, steps), "Training the base model", total=steps):
        tokens, labels = (t.to(model.device) for t in batch)
        loss = model(tokens, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return float(loss.detach())


def save(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write a model that is sampled from, with its tokenizer."""
    model.generation_config.do_sample = True
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Train the model and save it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=["running-sums", "tool-sums"], default="running-sums")
    parser.add_argument("--output", type=Path, help="by default, the folder in the package")
    parser.add_argument("--steps", type=int, help="by default 1600, and 600 with a tool")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    task, steps = arguments.task, arguments.steps
    tokenizer, model = make_tokenizer(), make_model(arguments.seed)
    rng = np.random.default_rng(arguments.seed)
    if task == "running-sums":
        loss = learn(model, tokenizer, demonstrate, steps or 1600, rng)
    else:  # the other model, which can add, is taught to ask
        model = Qwen2ForCausalLM.from_pretrained(
            MODELS / "running-sums", max_position_embeddings=256
        ).train()
        loss = learn(model, tokenizer, demonstrate_tool, steps or 600, rng, 1e-3, batch_size=64)
    print(f"last loss: {loss:.4f}")
    save(model, tokenizer, arguments.output or MODELS / task)


if __name__ == "__main__":
    main()
