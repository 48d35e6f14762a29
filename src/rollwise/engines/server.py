"""The server engine: responses from any server of an OpenAI-compatible completions API."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field
from transformers import PreTrainedTokenizerBase

from rollwise import loops
from rollwise.engines.asynchronous import AsyncEngine, fit_for_a_log, refused_for_good
from rollwise.engines.ends import end_of_turn
from rollwise.engines.settings import ServerSettings
from rollwise.errors import ConfigError, EngineError
from rollwise.sampling import Draw
from rollwise.step.response import LostDraw, Response

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


class _Logprobs(BaseModel):
    token_logprobs: list[float | None]


class _Choice(BaseModel):
    text: str
    finish_reason: str | None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class _Answer(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


class ServerEngine(AsyncEngine):
    """Draws responses from a running server, each draw a request of its own.

    Use it for evaluation and preparation: the weights are the server's own. Failed requests are
    retried after a while; one that fails for good, or takes too long, is a lost draw.

    Tokens are those that the server reports. If it reports none, they are the response's text as
    `tokenizer` encodes it, with the end of a turn if the response ended. Log-probabilities are
    unknown, unless a subclass asks for them in `options`.

    Args:
        settings: Which server, and how to query it.
        tokenizer: The tokenizer of the server's model.
        max_new_tokens: Responses are cut here, or where the server's context ends.
        temperature: Sampling temperature; above 0.
        batch_size: The most requests at a time.
        ends: Token ids that end a response, which a server with `extensions` is told; it has its
            own beside them.

    Attributes:
        options: What each request has beside the engine's own.
    """

    options: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        settings: ServerSettings,
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 256,
        ends: Collection[int] = (),
    ) -> None:
        for name in ("base_url", "model"):
            if not getattr(settings, name):
                raise ConfigError(f"engine.type = 'server' needs a value for `engine.{name}`")
        self.settings, self.tokenizer = settings, tokenizer
        self.max_new_tokens, self.temperature = max_new_tokens, temperature
        self._ends, turn = sorted(ends), end_of_turn(tokenizer)
        self._end = tokenizer.eos_token_id if turn is None else turn
        name = settings.api_key_env
        self._key = os.environ.get(name, "").strip() if name else ""
        if name and not (self._key and self._key.isascii() and self._key.isprintable()):
            fault = "holds characters that no key has" if self._key else "is not set"
            raise ConfigError(f"`engine.api_key_env`: the environment variable {name} {fault}")
        self._client = _connect(settings, self._key)
        self._lost_in_a_row = 0
        super().__init__(batch_size, settings.draw_timeout)

    async def complete(self, draw: Draw, prompt: Sequence[int]) -> Response:
        """See base class; an `EngineError` if a request is refused, or too many are lost."""
        try:
            response = await super().complete(draw, prompt)
        except LostDraw as lost:
            self._lost_in_a_row += 1
            if self._lost_in_a_row < LOSSES:
                raise
            raise EngineError(
                f"{self._lost_in_a_row} draws in a row were lost by the server at "
                f"{self.settings.base_url}; its log may say why"
            ) from lost
        self._lost_in_a_row = 0
        return response

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        raise EngineError(
            f"the server at {self.settings.base_url} uses its own weights and cannot load others; "
            "it is for evaluation and preparation"
        )

    def close(self) -> None:
        loops.run(self.disconnect())

    async def disconnect(self) -> None:
        """Close the connections, from the event loop on which they are."""
        await self._client.close()

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
            if self._ends:
                request["stop_token_ids"] = self._ends
        return {**request, **self.options}

    async def _respond(self, draw: Draw, prompt: list[int]) -> Response:
        from openai import APIError

        request = self._request(draw, prompt)
        try:
            answer = await self._client.post("/completions", cast_to=object, body=request)
            choice = _Answer.model_validate(answer).choices[0]
        except (APIError, ValueError) as error:  # ValueError: not JSON, or no completion
            self._check_refusal(error, draw, prompt)
            raise LostDraw(self._describe(error)) from None
        if choice.finish_reason not in ("stop", "length"):
            reason = f"the server ended it with {choice.finish_reason!r}"
            raise LostDraw(fit_for_a_log(reason, self._key))
        ended, tokens = choice.finish_reason == "stop", choice.token_ids
        text = choice.text.encode("utf-8", "replace").decode()  # a surrogate is no character
        if tokens is None:
            tokens = list(self.tokenizer.encode(text, add_special_tokens=False))
            if ended and self._end is not None:
                tokens.append(self._end)
            tokens = tokens[: self.max_new_tokens]  # re-encoded, it may have more than were drawn
        known = choice.logprobs.token_logprobs if choice.token_ids and choice.logprobs else []
        logprobs = np.array([np.nan if each is None else each for each in known], np.float32)
        return Response(tokens, logprobs, text, not ended)

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
