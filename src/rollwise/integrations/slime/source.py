"""A data source for slime that asks a prompt sampler, and the hook that tells it the results."""

import copy
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from rollwise.config.step import make_sampler, step_recipe
from rollwise.errors import ConfigError, RunError
from rollwise.integrations.slime.settings import PACKAGE, read_settings
from rollwise.records.states import load_state, save_state
from rollwise.sampling import Score
from rollwise.sampling.draws import Key
from rollwise.step import Response, Rollouts, learn_from
from rollwise.step.asking import ask, session_arguments
from rollwise.tasks.columns import smoothed

log = logging.getLogger(__name__)

PROMPT = "rollwise_prompt"
"""The key, in a sample's `metadata`, of its prompt's place in the data set."""


class PromptSource:
    """slime's `DataSource` with prompts from a sampler (`--data-source-path`).

    It reads the data set with slime's own source, and keeps its buffer: interrupted groups come
    first. A prompt is not asked for again before the rollout has ended, unless there is no other.
    slime calls it from several threads, so a lock guards it. The keys of its `sampler` are places
    of prompts in the data set, and `metrics` are those of the last rollout.

    Args:
        args: slime's arguments, parsed; `rollwise_settings` names the settings file.

    Raises:
        ConfigError: A setting or an argument of slime's cannot be followed; says which.
    """

    def __init__(self, args: Any) -> None:
        from slime.rollout.data_source import RolloutDataSourceWithBuffer

        settings = read_settings(args)
        self.args, self.recipe = args, step_recipe(settings)
        self._own = RolloutDataSourceWithBuffer(args)
        if self._own.dataset is None:
            raise ConfigError("slime's `prompt_data` must name the data set; it is None")
        self._rows: Sequence[Any] = self._own.dataset.origin_samples
        notes = [sample.metadata for sample in self._rows]
        columns = _columns(notes, settings.belief.features or ())
        self.sampler = make_sampler(settings, range(len(notes)), columns)
        self.rollouts = self._groups = 0
        self.metrics: dict[str, Any] = {}
        self._under_way: set[Key] = set()
        self._lock = threading.Lock()
        _SOURCES[id(args)] = self

    def __len__(self) -> int:
        """Return the number of prompts, by which slime counts epochs."""
        return len(self._rows)

    def get_samples(self, num_samples: int) -> list[list[Any]]:
        """Return groups to draw: first those of the buffer, then new ones."""
        with self._lock:
            buffer = self._own.buffer
            groups = self._own.buffer_filter(self.args, None, buffer, num_samples) if buffer else []
            return groups + [self._group(key) for key in self._ask(num_samples - len(groups))]

    def add_samples(self, samples: list[list[Any]]) -> None:
        """Keep groups that were interrupted; they are handed out again first."""
        with self._lock:
            self._own.add_samples(samples)

    def get_buffer_length(self) -> int:
        """Return the number of groups in the buffer."""
        return len(self._own.buffer)

    def save(self, rollout_id: int) -> None:
        """Write the state beside slime's checkpoint, to `rollout/rollwise_ID/` in `--save`."""
        with self._lock:
            folder, waiting = _folder(self.args.save, rollout_id), self._waiting()
            progress = {"rollouts": self.rollouts, "groups": self._groups}
            save_state(folder, self.sampler, waiting=waiting, **progress)

    def load(self, rollout_id: int | None = None) -> None:
        """Load what `save` wrote, from `--load`; before the first rollout there is nothing."""
        if self.args.load is None or rollout_id is None or rollout_id < 0:
            return
        with self._lock:
            self.rollouts, self._groups, waiting = load_state(
                _folder(self.args.load, rollout_id), self.sampler, "rollouts", "groups", "waiting"
            )
            self._own.buffer[:] = [self._group(key) for key in waiting]
            self._under_way = set(waiting)

    def learn(self, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
        """Tell the sampler a rollout's results; returns the samples' rewards and advantages.

        Samples that were aborted, or have no reward, are taken out of the loss.
        """
        responses = list(map(_response, samples))
        with self._lock:
            self.rollouts += 1
            rollouts = self._rollouts(samples, responses)
            step = learn_from(self.recipe, self.sampler, rollouts)
            self._under_way = set(self._waiting())
        self.metrics = step.metrics
        log.info("rollwise %d: %s", self.rollouts, json.dumps(step.metrics))
        known = {
            response: (float(reward), float(advantage))
            for group in step.groups
            for response, reward, advantage in zip(
                group.responses, group.members.rewards, group.advantages, strict=True
            )
        }
        for sample, response in zip(samples, responses, strict=True):
            sample.remove_sample |= response not in known
        pairs = [known.get(response, (0.0, 0.0)) for response in responses]
        return [reward for reward, _ in pairs], [advantage for _, advantage in pairs]

    def _rollouts(self, samples: Sequence[Any], responses: Sequence[Response]) -> Rollouts:
        """Return a session whose pools hold these samples, and what they cost."""
        keys: list[Key] = list(dict.fromkeys(map(prompt_of, samples)))
        arguments = session_arguments(self.recipe, self.sampler, keys)
        rollouts = Rollouts(session := self.recipe.session(keys, self.rollouts, **arguments))
        for pool in session.pools.values():
            pool.exit_reason = "satisfied"
        for sample, response in zip(samples, responses, strict=True):
            rollouts.cost.tokens += response.figures.tokens
            if sample.status.value == "aborted" or sample.reward is None:
                session.lost += 1
            else:
                told = sample.reward if isinstance(sample.reward, dict) else {}
                score = Score.of({**told, "score": sample.get_reward_value(self.args)})
                session.pools[prompt_of(sample)].take(score, response)
        return rollouts

    def _ask(self, count: int) -> list[Any]:
        """Ask for prompts that are not under way; if these run out, for any."""
        keys: list[Any] = []
        while len(keys) < count:
            wanted = min(count - len(keys), len(self))
            further = ask(self.sampler, wanted, exclude=self._under_way)
            keys += further
            self._under_way = self._under_way | set(further) if further else set()
        return keys

    def _group(self, place: int) -> list[Any]:
        """Return the samples of a prompt that slime is to draw."""
        size = self.args.n_samples_per_prompt
        group = [copy.deepcopy(self._rows[place]) for _ in range(size)]
        for number, sample in enumerate(group, self._groups * size):
            sample.group_index, sample.index = self._groups, number
            sample.metadata[PROMPT] = place
        self._groups += 1
        return group

    def _waiting(self) -> list[int]:
        """Return the prompts of the groups in the buffer."""
        return [prompt_of(group[0]) for group in self._own.buffer]


_SOURCES: WeakValueDictionary[int, PromptSource] = WeakValueDictionary()
"""By the id of slime's arguments, the only thing that slime passes to both source and hook."""


def post_process_rewards(args: Any, samples: list[Any]) -> tuple[list[float], list[float]]:
    """Return rewards and advantages, and tell the sampler (`--custom-reward-post-process-path`)."""
    if id(args) not in _SOURCES:
        raise ConfigError(f"slime's `data_source_path` must be {PACKAGE}.PromptSource")
    return _SOURCES[id(args)].learn(samples)


def _response(sample: Any) -> Response:
    length, logprobs = sample.response_length, sample.rollout_log_probs or ()
    mask = np.array(sample.loss_mask or [1] * length, bool)
    return Response(
        tokens=sample.tokens[len(sample.tokens) - length :],
        logprobs=np.array(logprobs, np.float32) if len(logprobs) == length else (),
        truncated=sample.status.value == "truncated",
        mask=mask,
        turns=int(np.count_nonzero(np.diff(mask, prepend=False) & mask)),
    )


def prompt_of(sample: Any) -> int:
    """Return the place of a sample's prompt in the data set."""
    if PROMPT not in (sample.metadata or {}):
        raise RunError(
            f"sample {sample.index} has no metadata[{PROMPT!r}]: what creates samples must keep it"
        )
    return int(sample.metadata[PROMPT])


def _folder(checkpoints: str, rollout_id: int) -> Path:
    return Path(checkpoints) / "rollout" / f"rollwise_{rollout_id}"


def _columns(
    notes: Sequence[Mapping[str, Any]], named: Sequence[str]
) -> dict[str, list[float | None]]:
    """Return what the `metadata` of samples says of prompts, as features of a belief."""
    rates = [(note.get("pass_rate") or 0.0, note.get("drawn") or 0.0) for note in notes]
    columns = {"pass_rate": [smoothed(rate * drawn, drawn) for rate, drawn in rates]}
    names = dict.fromkeys(("source", "subject", "level", *named))
    present = [name for name in names if any(name in note for note in notes)]
    return columns | {name: [note.get(name) for note in notes] for name in present}
