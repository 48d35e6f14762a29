"""The contract of an environment of several turns."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rollwise.plugins import wrong_result
from rollwise.sampling.checks import Checked

Message = Mapping[str, str]
"""A message of a conversation: `role` and `content`."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What an episode begins with.

    Attributes:
        messages: What the model is shown first, the problem.
        answer: The problem's reference answer.
        seed: For the environment's random numbers; the same whenever the draw is drawn again.
    """

    messages: Sequence[Message]
    answer: str
    seed: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What an environment does with what the model said.

    Attributes:
        says: What the model reads next. A text becomes a user message if the tokenizer has a chat
            template, and is appended as it is otherwise. Messages need a chat template: they
            follow the model's own, as a tool's result does.
        done: Whether the episode ends here.
        reward: The episode's reward if it ends here, by itself or at a limit. None lets the grader
            decide by what the model said last, if `done`; at a limit it counts as 0.
        anew: Messages from which the episode continues, in place of all that was said so far: to
            compact the context, or to ask another agent. It remains one draw.
    """

    says: str | Sequence[Message] = ""
    done: bool = False
    reward: float | None = None
    anew: Sequence[Message] | None = None


class Play(Protocol):
    """One episode under way.

    It may also have a method `close()`, which is called at its end, however it ends.
    """

    def step(self, reply: str) -> Turn | Awaitable[Turn]:
        """Answer `reply`, what the model said without special tokens.

        An ordinary method must be quick, because all other episodes wait for it. A method that
        waits for something should be `async`: it runs beside the others.

        Raises:
            LostDraw: The environment is at fault; the draw is drawn again (`rollwise.step`).
            Exception: Anything else ends the episode as failed, with reward 0.
        """


def checked_turn(play: object, answer: object) -> Turn:
    """Return what an environment has answered.

    Raises:
        PluginError: It is not a `Turn`, or has a part of the wrong type; names the environment.
    """
    wanted = ""
    if not isinstance(answer, Turn):
        wanted = "a rollwise.environments.Turn"
    elif not (isinstance(answer.says, str) or _are_messages(answer.says)):
        wanted = "a Turn whose `says` is a text, or messages with texts as role and content"
    elif answer.anew is not None and not _are_messages(answer.anew):
        wanted = "a Turn whose `anew` is messages with texts as role and content"
    elif not isinstance(answer.done, bool | np.bool_):
        wanted = "a Turn whose `done` is True or False"
    elif answer.reward is not None and not hasattr(answer.reward, "__float__"):
        wanted = "a Turn whose reward is a number, or None"
    if wanted:
        raise wrong_result(play, "step", wanted, answer)
    return answer  # type: ignore[return-value]


def _are_messages(said: object) -> bool:
    return isinstance(said, Sequence) and all(
        isinstance(message, Mapping)
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
        for message in said
    )


class EpisodeEnvironment(Checked):
    """Base class of the environments that `episode.type` can name.

    A subclass is a frozen dataclass, whose fields are its settings. Write `begin`.
    """

    @property
    def roles(self) -> Sequence[str]:
        """Roles of the messages that it says: a run tries each with the model's chat template."""
        return ("user",)

    def begin(self, opening: Opening) -> Play:
        """Begin an episode; called after the model's first turn."""
        raise NotImplementedError


@dataclass(frozen=True)
class SingleTurn(EpisodeEnvironment):
    """No environment: a draw is one response, which the grader grades."""
