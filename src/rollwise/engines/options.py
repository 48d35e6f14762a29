"""How vLLM and a server are run: what their engines need of their settings."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from rollwise.sampling.checks import above_zero, at_least, setting


@dataclass(frozen=True)
class VLLMOptions:
    """How vLLM's process is run.

    Raises:
        ValueError: A value out of its range.
    """

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "Precision of its weights; `auto` leaves the choice to vLLM."
    )
    gpu_memory_utilization: float = setting(
        0.4,
        "Share of the device's memory for its weights and cache; the learner needs the rest.",
    )
    tensor_parallel_size: int = setting(1, "Devices that its weights are split over.")
    enforce_eager: bool = setting(False, "Compile nothing: vLLM starts sooner and draws slower.")
    sleep_level: int = setting(
        0,
        "What vLLM does with its memory while the learner learns: 0 keeps it, 1 moves its weights "
        "into the machine's memory and drops its cache, 2 drops both. It gets it back before the "
        "next draw. Needs a GPU.",
    )
    draw_timeout: float = setting(
        600.0,
        "Seconds for one response; one that takes longer is drawn again, a few times at most.",
    )
    restarts: int = setting(3, "How often in a run its process is restarted after it died.")

    def __post_init__(self) -> None:
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(
                "gpu_memory_utilization must lie above 0, at most 1, got "
                f"{self.gpu_memory_utilization}"
            )
        at_least("tensor_parallel_size", self.tensor_parallel_size, 1)
        if self.sleep_level not in (0, 1, 2):
            raise ValueError(f"sleep_level must be 0, 1 or 2, got {self.sleep_level}")
        above_zero("draw_timeout", self.draw_timeout)
        at_least("restarts", self.restarts, 0)


@dataclass(frozen=True)
class ServerOptions:
    """How a server is asked.

    Raises:
        ValueError: A value out of its range, or an address that is none or holds a secret.
    """

    base_url: str = setting("", "Its address up to `/v1`, such as `http://localhost:8000/v1`.")
    model: str = setting("", "The server's name for the model.")
    api_key_env: str = setting(
        "", "The environment variable that holds the key; empty if the server needs none."
    )
    prompts: Literal["tokens", "text"] = setting(
        "tokens", "How prompts are sent; as `text` to a server that takes no token ids."
    )
    extensions: bool = setting(
        True,
        "Send options of vLLM, SGLang and llama.cpp beyond OpenAI's API, to get token ids back and "
        "to sample without top-k, min-p and penalties; `false` for a server that refuses them.",
    )
    processed_logprobs: bool = setting(
        False,
        "Its log-probabilities are at the temperature of sampling (vLLM: "
        "`--logprobs-mode processed_logprobs`); others are used only at temperature 1.",
    )
    draw_timeout: float = setting(
        600.0,
        "Seconds for one response, retries and their waits included; one that takes longer is "
        "drawn again, a few times at most.",
    )
    retries: int = setting(
        6,
        "How often a request is retried after a lost connection, too many requests or a server "
        "error, with growing waits or those that the server asks for.",
    )
    losses: int = setting(1000, "This many lost draws in a row end the run.")

    def __post_init__(self) -> None:
        above_zero("draw_timeout", self.draw_timeout)
        at_least("retries", self.retries, 0)
        at_least("losses", self.losses, 1)
        parts = urlsplit(self.base_url)
        if self.base_url and not (parts.scheme in ("http", "https") and parts.hostname):
            raise ValueError("base_url must begin with http:// or https:// and name a host")
        if parts.username or parts.password or parts.query:
            raise ValueError(
                "base_url must hold no password, key or query; put the key into an environment "
                "variable, and its name into api_key_env"
            )
