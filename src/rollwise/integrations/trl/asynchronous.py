"""A rollout worker for TRL's `AsyncGRPOTrainer`, which learns while responses are drawn."""

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from transformers import AutoTokenizer
from trl.experimental.async_grpo import AsyncGRPOConfig
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from rollwise.config.base import Rule, refusals
from rollwise.config.step import make_sampler, step_recipe
from rollwise.engines.server import ServerEngine
from rollwise.engines.settings import ServerSettings
from rollwise.errors import ConfigError, EngineError
from rollwise.integrations.trl.methods import announced, differences, method_settings
from rollwise.integrations.trl.options import Total, check_data
from rollwise.integrations.trl.state import FOLDER, SavedSampler, message_of, prompt_tokens
from rollwise.integrations.trl.upstream import UPSTREAM_ASYNC
from rollwise.records import flatten, numbers
from rollwise.records.states import load_state
from rollwise.releases import unmet
from rollwise.sampling import Draw
from rollwise.sampling.draws import Key
from rollwise.step import Response, Rollouts, Step, draw_session
from rollwise.step.asking import ask, session_arguments
from rollwise.step.step import learn_from

if reason := unmet("trl", UPSTREAM_ASYNC):
    raise ImportError(f"{__name__}: {reason}")

STOPPING = 30.0
"""Seconds that requests and reward functions have to end."""

_WHOLE = "the learner's probabilities are of the whole distribution"
_AHEAD = "prompts are asked for while others are under way"

RULES: tuple[Rule, ...] = (
    ("top_p", (1,), _WHOLE),
    ("top_k", (0, -1), _WHOLE),
    ("min_p", (None, 0), _WHOLE),
    ("repetition_penalty", (1,), _WHOLE),
)
"""What TRL's settings must be."""

RULES_OF_METHODS: tuple[Rule, ...] = (
    ("allocation.type", ("none",), _AHEAD),
    ("group.zero_variance", ("drop", "keep"), _AHEAD),
)
"""What a method's settings must be."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawn(Response):
    """A response, and the version of the weights that began it."""

    version: int


class SessionRolloutWorker(SavedSampler):
    """Draws for TRL's `AsyncGRPOTrainer`: rollwise's prompts, draws and advantages.

    It asks a vLLM server, in a thread of the trainer's process, for the prompts of one update at a
    time. While the trainer learns, up to `max_staleness` updates' are under way or wait. Give it
    as `rollout_worker` (TRL's `RolloutWorkerProtocol`), and in `callbacks`, which keep the prompt
    sampler's state in the trainer's checkpoints.

    Args:
        model: What the server calls the model.
        reward_funcs: As for the trainer, which does not call them.
        args: The trainer's configuration, such as `grpo_config(kind=AsyncGRPOConfig)` makes.
        train_dataset: As for the trainer.
        processing_class: The tokenizer; by default the model's.
        method: How prompts are sampled, and what is learned, by a method's name.
        settings: What differs from the method, as in a file of `rollwise train`:
            `{"prompts": {"exploration": 0.3}}`.
        correctness: See `AdaptiveGRPOTrainer`.

    Raises:
        ConfigError: A setting cannot be followed, by name.
        ValueError: The data set cannot be sampled, or there is no such reward function.
    """

    def __init__(
        self,
        model: str,
        reward_funcs: Any,
        args: AsyncGRPOConfig,
        train_dataset: Any,
        processing_class: Any = None,
        *,
        method: str = "single",
        settings: Mapping[str, Any] | None = None,
        correctness: str | None = None,
    ) -> None:
        super().__init__(self)
        check_data(train_dataset)
        given = settings or {}
        config = method_settings(method, {**given, "seed": args.seed}, args.num_generations)
        self._recipe = recipe = step_recipe(config)
        size = recipe.group_size
        rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        self._prompts, self._ahead = max(1, rows // size), max(1, args.max_staleness)
        wrong = refusals(RULES, lambda name: getattr(args, name))
        wrong += refusals(RULES_OF_METHODS, lambda name: attrgetter(name)(config))
        if (wanted := self._prompts * (self._ahead + 1)) > len(train_dataset):
            wrong.append(
                f"train_dataset must hold {wanted} prompts, those of max_staleness + 1 updates; it "
                f"has {len(train_dataset)}"
            )
        if wrong:
            raise ConfigError("\n".join(wrong))
        self.args, self.train_dataset, self._model = args, train_dataset, model
        self._tokenizer = processing_class or AutoTokenizer.from_pretrained(model)
        self._functions = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
        names = [getattr(each, "__name__", type(each).__name__) for each in self._functions]
        by_belief = recipe.resolved_objective.uses_priors
        self._reward = Total(names, [1.0] * len(names), by_belief, correctness)
        prompts = replace(config.prompts, batch_size=self._prompts)
        sampler = replace(config, prompts=prompts)
        self.prompt_sampler = make_sampler(sampler, range(len(train_dataset)), {})
        self.sampling_steps, self._version, self._groups = 0, 0, itertools.count()
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue()
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        self._busy: set[Key] = set()
        self._lock = threading.Lock()  # of the prompt sampler
        self._stopping, self._ticked = threading.Event(), time.monotonic()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._is_callback = False
        if args.process_index == 0:
            drawn = f"{self._prompts} prompts an update, {size} response{'s' * (size > 1)} each"
            changed = [f"{name} {value!r}" for name, value in flatten(given, ".").items()]
            print(announced(method, drawn, differences(args, method, changed)), flush=True)

    # What the trainer calls: `RolloutWorkerProtocol`.

    def start(self) -> None:
        """Begin to draw."""
        if not self._is_callback:
            raise RuntimeError(
                "give the worker to the trainer twice, AsyncGRPOTrainer(rollout_worker=worker, "
                "callbacks=[worker]): as a callback it keeps its sampler's state in checkpoints"
            )
        self._ticked = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="rollwise", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel what is under way."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOPPING)

    def update_model_version(self, model_version: int) -> None:
        """Note that the server has these weights now."""
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raise a RuntimeError if the worker has failed or hangs."""
        if self._error is not None:
            raise RuntimeError(f"the rollout worker failed: {self._error}") from self._error
        if (age := time.monotonic() - self._ticked) > stale_after_s:
            raise RuntimeError(f"the rollout worker has been stuck for {age:.0f} s")

    # Callbacks of the trainer.

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Load the prompt sampler's state, if training resumes from a checkpoint."""
        if hasattr(others.get("model"), "peft_config"):
            raise ValueError("SessionRolloutWorker draws from the whole model, not from adapters")
        self._is_callback = True
        if state.global_step:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}", FOLDER)
            (self.sampling_steps,) = load_state(folder, self.prompt_sampler, "sampling_steps")

    def on_save(self, *given: Any, **others: Any) -> None:
        """See base class."""
        with self._lock:
            super().on_save(*given, **others)

    # Drawing.

    def _work(self) -> None:
        try:
            asyncio.run(self._until_stopped())
        except BaseException as error:
            self._error = error

    async def _until_stopped(self) -> None:
        engine = PolicyServer(self._model, self.args, self._tokenizer, lambda: self._version)
        steps: set[asyncio.Task[None]] = set()
        try:
            while not self._stopping.is_set():
                self._ticked = time.monotonic()
                rows = self._prompts * self._recipe.group_size
                while len(steps) + self.rollout_buffer.qsize() / rows < self._ahead:
                    steps.add(asyncio.create_task(self._step(engine, *self._ask())))
                await asyncio.sleep(0.01)
                done = {each for each in steps if each.done()}
                steps -= done
                for each in done:
                    each.result()
        finally:
            for each in steps:
                each.cancel()
            await asyncio.gather(*steps, return_exceptions=True)
            await engine.disconnect()

    def _ask(self) -> tuple[list[Key], Any]:
        """Ask for the prompts of an update; returns them, and the session that samples them."""
        with self._lock:
            keys = ask(self.prompt_sampler, self._prompts, self._busy)
            known = session_arguments(self._recipe, self.prompt_sampler, keys)
            self.sampling_steps += 1
        self._busy.update(keys)
        return keys, self._recipe.session(keys, self.sampling_steps, **known)

    async def _step(self, engine: "PolicyServer", keys: list[Key], session: Any) -> None:
        """Sample prompts to their end, tell the sampler, and hand over what is learned from."""
        rows = {key: self.train_dataset[key] for key in keys}
        template = self.args.chat_template_kwargs or {}
        prompts = {
            key: prompt_tokens(self._tokenizer, row["prompt"], **template)
            for key, row in rows.items()
        }
        graded: dict[Draw, tuple[list[float], Any]] = {}

        async def reward(draw: Draw, response: Response) -> float:
            said: Any = response.text
            if not isinstance(rows[draw.key]["prompt"], str):
                said = [message_of(self._tokenizer, prompts[draw.key], response)]
            rewards = await self._grade(rows[draw.key], said, response)
            graded[draw] = rewards, said
            return self._reward.of(rewards)

        cost = await draw_session(session, engine, prompts, reward)
        with self._lock:
            step = learn_from(self._recipe, self.prompt_sampler, Rollouts(session, cost=cost))
        self._busy.difference_update(keys)
        for sample in self._samples(step, rows, prompts, graded):
            self.rollout_buffer.put(sample)
        self.metrics_queue.put(numbers({FOLDER: step.metrics}))

    async def _grade(self, row: Mapping[str, Any], said: Any, response: Response) -> list[float]:
        """Return what each reward function gives a response; NaN where it abstains."""
        known = {**row, "prompts": row["prompt"], "completions": said}
        known["completion_ids"] = list(response.tokens)
        given = {
            name: [value] for name, value in known.items() if name not in ("prompt", "completion")
        }

        async def call(function: Any) -> float:
            if asyncio.iscoroutinefunction(function):
                (found,) = await function(**given)
            else:
                (found,) = await asyncio.to_thread(function, **given)
            return float("nan") if found is None else float(found)

        return list(await asyncio.gather(*map(call, self._functions)))

    def _samples(self, step: Step, rows: Any, prompts: Any, graded: Any) -> Iterator[RolloutSample]:
        """Turn the groups of a step into the trainer's rows.

        Its loss averages over tokens. Where each response is to count alike, its advantage is
        multiplied by the mean number of tokens over its own.
        """
        kept = [group for group in step.groups if len(group.pool) and not group.dropped]
        lengths = [len(response.tokens) for group in kept for response in group.responses]
        for group in kept:
            key, number = group.pool.key, next(self._groups)
            for response, value in zip(group.responses, group.advantages.tolist(), strict=True):
                length, (rewards, said) = len(response.tokens), graded[response.draw]
                before, by_response = [0] * len(prompts[key]), self._recipe.average == "responses"
                named = zip(self._reward.names, rewards, strict=True)
                yield RolloutSample(
                    prompt=rows[key]["prompt"],
                    completion=said,
                    input_ids=np.array([*prompts[key], *response.tokens], np.int64),
                    completion_mask=np.array([*before, *[1] * length], np.int64),
                    old_log_probs=np.array([*before, *response.logprobs], np.float32),
                    advantage=value * (np.mean(lengths) / length if by_response else 1.0),
                    model_version=response.version,
                    group_id=number,
                    metrics={
                        "reward": self._reward.of(rewards),
                        **{f"rewards/{name}": reward for name, reward in named},
                    },
                    enqueued_at=time.time(),
                )


class PolicyServer(ServerEngine):
    """The vLLM server that the trainer sends its weights to."""

    options: ClassVar = {"logprobs": 0}  # of the token that is drawn

    def __init__(self, model: str, args: AsyncGRPOConfig, tokenizer: Any, version: Any) -> None:
        address = f"{args.vllm_server_base_url.rstrip('/')}/v1"
        timeout = float(args.request_timeout)
        settings = ServerSettings(base_url=address, model=model, draw_timeout=timeout)
        slots = args.max_inflight_tasks if args.max_inflight_tasks > 0 else 1024
        super().__init__(settings, tokenizer, args.max_completion_length, args.temperature, slots)
        self._version = version

    async def _respond(self, draw: Draw, prompt: list[int]) -> Response:
        version = self._version()
        found = await super()._respond(draw, prompt)
        if len(found.logprobs) != len(found.tokens) or np.isnan(found.logprobs).any():
            raise EngineError(
                f"the server at {self.settings.base_url} reports no log-probability of each token, "
                "as vLLM does"
            )
        given = {name: getattr(found, name) for name in ("tokens", "logprobs", "text", "truncated")}
        return Drawn(**given, version=version)
