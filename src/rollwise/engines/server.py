"""The server engine: responses from any server of an OpenAI-compatible completions API."""

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field
from transformers import PreTrainedTokenizerBase

from rollwise.engines.asynchronous import (
    AsyncEngine,
    end_other_tasks,
    fit_for_a_log,
    refused_for_good,
)
from rollwise.engines.settings import ServerSettings
from rollwise.errors import ConfigError, EngineError
from rollwise.sampling import Draw
from rollwise.step.outcomes import Completion, LostDraw, Prompts, Result

SEEDS = 2**31
"""Seeds are folded below this, which every server takes: some have 32 bits, some a sign bit."""

LOSSES = 1000
"""This many lost draws in a row end a command."""

EXTENSIONS = {
    "return_token_ids": True,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,  # as vLLM and SGLang call it
    "repeat_penalty": 1.0,  # as llama.cpp does
}
"""Options beyond the API: return token ids, and sample from the unchanged distribution."""


class _Choice(BaseModel):
    text: str
    finish_reason: str | None
    token_ids: list[int] | None = None


class _Answer(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


class ServerEngine(AsyncEngine):
    """Draws responses from a running server, each draw a request of its own.

    Use it for evaluation and preparation: the weights are the server's own. Failed requests are
    retried after a while; one that fails for good, or takes too long, is a lost draw.

    Tokens are those that the server reports. If it reports none, they are the response's text as
    `tokenizer` encodes it, with its end token if the response ended. Log-probabilities are NaN.

    Args:
        settings: Which server, and how to query it.
        tokenizer: The tokenizer of the server's model.
        max_new_tokens: Responses are cut here, or where the server's context ends.
        temperature: Sampling temperature; above 0.
        batch_size: The most requests at a time.
    """

    def __init__(
        self,
        settings: ServerSettings,
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 256,
    ) -> None:
        for name in ("base_url", "model"):
            if not getattr(settings, name):
                raise ConfigError(f"engine.type = 'server' needs a value for `engine.{name}`")
        self.settings, self.tokenizer = settings, tokenizer
        self.max_new_tokens, self.temperature = max_new_tokens, temperature
        name = settings.api_key_env
        self._key = os.environ.get(name, "").strip() if name else ""
        if name and not (self._key and self._key.isascii() and self._key.isprintable()):
            fault = "holds characters that no key has" if self._key else "is not set"
            raise ConfigError(f"`engine.api_key_env`: the environment variable {name} {fault}")
        self._client = _connect(settings, self._key)
        self._lost_in_a_row = 0
        super().__init__(batch_size, "server")

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        for draw in draws:
            complete = functools.partial(self._complete, draw, list(prompts[draw.key]))
            self._begin(draw, complete, self.settings.draw_timeout)

    def wait(self) -> Sequence[Result]:
        """Return what is done; an `EngineError` if a request is refused, or too many are lost."""
        results = super().wait()
        for result in results:
            self._lost_in_a_row = self._lost_in_a_row + 1 if isinstance(result, LostDraw) else 0
        if self._lost_in_a_row >= LOSSES:
            raise EngineError(
                f"{self._lost_in_a_row} draws in a row were lost by the server at "
                f"{self.settings.base_url}; its log may say why"
            )
        return results

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        raise EngineError(
            f"the server at {self.settings.base_url} uses its own weights and cannot load others; "
            "it is for evaluation and preparation"
        )

    def _request(self, draw: Draw, prompt: list[int]) -> dict[str, Any]:
        request = {
            "model": self.settings.model,
            "prompt": prompt,
            "n": 1,
            "max_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "top_p": 1.0,
            "seed": draw.seed % SEEDS,
        }
        if self.settings.extensions:
            request |= EXTENSIONS
        return request

    async def _complete(self, draw: Draw, prompt: list[int]) -> Result:
        from openai import APIError

        request = self._request(draw, prompt)
        try:
            answer = await self._client.post("/completions", cast_to=object, body=request)
            choice = _Answer.model_validate(answer).choices[0]
        except (APIError, ValueError) as error:  # ValueError: not JSON, or no completion
            self._check_refusal(error, draw, prompt)
            return LostDraw(draw, self._describe(error))
        if choice.finish_reason not in ("stop", "length"):
            reason = f"the server ended it with {choice.finish_reason!r}"
            return LostDraw(draw, fit_for_a_log(reason, self._key))
        return self._completion(draw, choice)

    def _completion(self, draw: Draw, choice: _Choice) -> Completion:
        ended, tokens = choice.finish_reason == "stop", choice.token_ids
        text = choice.text.encode("utf-8", "replace").decode()  # a surrogate is no character
        if tokens is None:
            tokens = list(self.tokenizer.encode(text, add_special_tokens=False))
            end = self.tokenizer.eos_token_id
            if ended and end is not None:
                tokens.append(end)
            tokens = tokens[: self.max_new_tokens]  # re-encoded, it may have more than were drawn
        unknown = np.full(len(tokens), np.nan, np.float32)
        return Completion(draw, tokens, unknown, text, truncated=not ended)

    def _check_refusal(self, error: Exception, draw: Draw, prompt: list[int]) -> None:
        """Raise an EngineError if the server would refuse the same request again."""
        if not refused_for_good(error):
            return
        status: int = error.status_code  # type: ignore[attr-defined]
        address, variable = self.settings.base_url, self.settings.api_key_env
        if status in (401, 403):  # the server's message may show parts of the key
            wrong = f"the key in {variable} is not accepted" if variable else "it requires a key"
            raise EngineError(
                f"the server at {address} refuses access ({status}): {wrong} (`engine.api_key_env`)"
            ) from None
        raise EngineError(
            f"the server at {address} refuses the prompt {draw.key!r} of {len(prompt)} tokens with "
            f"max_tokens {self.max_new_tokens} ({status}): {self._describe(error)}"
        ) from None

    def _describe(self, error: Exception) -> str:
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        return fit_for_a_log(f"{type(error).__name__}: {error}{cause}", self._key)

    async def _release(self) -> None:
        await end_other_tasks()
        await self._client.close()


def _connect(settings: ServerSettings, key: str) -> Any:
    try:
        from openai import AsyncOpenAI, Omit
    except ImportError:
        raise EngineError(
            "engine.type = 'server' needs the package openai: pip install 'rollwise[server]'"
        ) from None
    # Do not send the user's OpenAI account, which the environment may name, to other servers.
    private = {name: Omit() for name in ("OpenAI-Organization", "OpenAI-Project")}
    return AsyncOpenAI(
        api_key=key or "none",
        base_url=settings.base_url,
        timeout=settings.draw_timeout,
        max_retries=settings.retries,
        default_headers=private,
    )
