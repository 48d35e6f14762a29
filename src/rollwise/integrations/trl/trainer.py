"""`GRPOTrainer` with adaptive sampling: which prompts, and how many responses each."""

import inspect
import math
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray
from torch import Tensor
from trl import GRPOTrainer
from trl.chat_template_utils import parse_response

from rollwise.engines import Engine
from rollwise.engines.transformers import TransformersEngine
from rollwise.integrations.trl.engines import Graded, SharedEngine, TRLEngine
from rollwise.integrations.trl.options import AdaptiveSampling, single_responses
from rollwise.integrations.trl.requirements import (
    check_arguments,
    check_settings,
    reports_logprobs,
    takes_own_engine,
)
from rollwise.records import numbers
from rollwise.records.states import load_state, save_state
from rollwise.sampling import RolloutSession
from rollwise.sampling.draws import Key
from rollwise.step import RolloutCost, Step, TrainedGroup, take_step
from rollwise.step.outcomes import Outcome
from rollwise.step.session import finished, run_session

FOLDER = "rollwise"
"""In each of TRL's checkpoints, the state of the prompt sampler."""


@dataclass(frozen=True)
class Row:
    """A response in TRL's batch; one that does not count only fills it, and has no loss."""

    completion: Outcome
    advantage: float
    counts: bool


class AdaptiveGRPOTrainer(GRPOTrainer):
    """TRL's `GRPOTrainer` with rollwise's sampling; all its arguments keep their meaning.

    At each generation step it asks its prompt sampler for prompts, draws responses until each
    prompt has enough signal, and passes groups with their advantages to TRL. Their size is
    `num_generations`, or `sampling.group_size`, which the attribute `num_generations` then has too.
    The sampler gets the pass rates before it is asked again. The rows of TRL's data loader and
    `shuffle_dataset` are ignored, because the sampler chooses the prompts. Evaluation is TRL's own.

    Args:
        sampling: Which prompts, how many responses, what is learned; by default
            `single_responses()`.
        *args: Those of `GRPOTrainer`.
        **kwargs: Those of `GRPOTrainer`.

    Raises:
        ValueError: A setting of TRL's that cannot be combined with adaptive sampling, by name.
    """

    def __init__(self, *args: Any, sampling: AdaptiveSampling | None = None, **kwargs: Any) -> None:
        check_arguments(inspect.signature(GRPOTrainer).bind_partial(*args, **kwargs).arguments)
        super().__init__(*args, **kwargs)
        if sampling is None:
            sampling = single_responses()
            if not reports_logprobs(self, sampling):
                sampling = replace(sampling, normalize_gradients=False)
        grpo = self.args
        self._recipe = sampling.recipe(
            grpo.num_generations, grpo.scale_rewards, grpo.loss_type, grpo.seed
        )
        check_settings(self, sampling, self._recipe)
        # TRL counts epochs and describes groups in its metrics by this attribute. It wants
        # `args.num_generations`, which stays as it is, to be at least 2.
        self.num_generations: int = self._recipe.group_size
        self._groups_per_step = grpo.generation_batch_size // self.num_generations
        keys = range(len(self.train_dataset))
        self.prompt_sampler = sampling.prompt_sampler(
            keys=keys, batch_size=self._groups_per_step, seed=grpo.seed
        )
        self.sampling_steps = 0
        self._prompts: dict[Key, Sequence[int]] = {}
        self._rows: list[Row] | None = None
        self._last_micro_batch = math.inf
        self._engine = self._make_engine(sampling)

    def _make_engine(self, sampling: AdaptiveSampling) -> SharedEngine:
        rows = sampling.engine_batch_size or (
            self.args.per_device_train_batch_size * self.args.steps_per_generation
        )
        own: Engine
        if takes_own_engine(self, sampling):
            model = self.accelerator.unwrap_model(self.model)
            longest, temperature = self.max_completion_length, self.temperature
            own = TransformersEngine(model, self.processing_class, longest, temperature, rows)
        else:
            own = TRLEngine(self, None if self.use_vllm else rows)
        rank, ranks = self.accelerator.process_index, self.accelerator.num_processes
        return SharedEngine(own, self._grade, gather_object, rank, ranks)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """Sample adaptively, and let TRL build its batch from that; evaluation is TRL's own."""
        if not self.model.training:
            evaluated: dict[str, Any] = super()._generate_and_score_completions(inputs)
            return evaluated
        rows = self._sample()
        own = self._own_part(rows)
        chosen = [self.train_dataset[row.completion.draw.key] for row in own]
        with self._handing_over(rows, own):
            output: dict[str, Any] = super()._generate_and_score_completions(chosen)
        self._engine.forget()
        return self._with_advantages(output, rows, own)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Train on a micro-batch; the last one of prompts with `visits` ends training."""
        loss: Tensor = super().training_step(*args, **kwargs)
        self.control.should_training_stop |= self._step >= self._last_micro_batch
        return loss

    def _sample(self) -> list[Row]:
        """Take a step of sampling; returns the rows of all processes."""
        self.sampling_steps += 1
        self._prompts.clear()
        self._engine.load_weights({})  # the engine shares the model, which has been updated
        step = take_step(self._recipe, self.prompt_sampler, self._roll_out, self.sampling_steps)
        self._log_step(step)
        if self.prompt_sampler.exhausted:
            ahead = self.args.steps_per_generation * self.num_iterations
            self._last_micro_batch = self._step + ahead
        return make_rows(step.groups, self._groups_per_step, self.num_generations)

    def _roll_out(self, session: RolloutSession) -> RolloutCost:
        for key in session.pools:
            self._prompts[key] = self._tokenize_prompts([self.train_dataset[key]["prompt"]])[0][0]
        with self.accelerator.autocast():
            return run_session(session, self._engine, self._prompts, self._totals)

    def _grade(self, completions: Sequence[Outcome]) -> list[Graded]:
        """Call TRL's reward functions."""
        inputs = [self.train_dataset[completion.draw.key] for completion in completions]
        prompts = [row["prompt"] for row in inputs]
        texts: list[Any] = [completion.text for completion in completions]
        if not isinstance(prompts[0], str):
            texts = [[self._message(completion)] for completion in completions]
        token_ids = [completion.tokens for completion in completions]
        own = self._own_part(super()._calculate_rewards(inputs, prompts, texts, token_ids))
        logged = {name: values for name, values in self._pending_extra_logs.items() if values}
        self._pending_extra_logs.clear()
        return [
            Graded(tuple(rewards), {name: values[i] for name, values in logged.items()})
            for i, rewards in enumerate(own.double().tolist())
        ]

    def _message(self, completion: Outcome) -> dict[str, Any]:
        """Parse a response as TRL does, by the tokenizer's template if it has one."""
        names = ("response_template", "response_schema")
        if all(getattr(self.processing_class, name, None) is None for name in names):
            return {"role": "assistant", "content": completion.text}
        prompt = list(self._prompts[completion.draw.key])
        parsed: dict[str, Any] = parse_response(
            self.processing_class, completion.tokens, prefix=prompt
        )
        return parsed

    def _totals(self, completions: Sequence[Outcome]) -> list[Future[float]]:
        """Add up rewards by their weights, of the functions that do not abstain."""
        rewards = np.array([self._engine.graded[c.draw].rewards for c in completions])
        weights: NDArray[np.float64] = self.reward_weights.double().cpu().numpy()
        return [finished(total) for total in np.nansum(rewards * weights, axis=1).tolist()]

    @contextmanager
    def _handing_over(self, rows: Sequence[Row], own: Sequence[Row]) -> Any:
        """Let TRL use the responses and rewards that are known already."""
        done = [row.completion for row in own]
        found = {
            "prompt_ids": [list(self._prompts[completion.draw.key]) for completion in done],
            "completion_ids": [completion.tokens for completion in done],
            "logprobs": [each.logprobs.tolist() for each in done] if self.use_vllm else None,
        }
        self._rows = list(rows)
        self.rollout_func: Any = lambda prompts, trainer: found
        try:
            yield
        finally:
            self.rollout_func, self._rows = None, None

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> Tensor:
        """Return the known rewards; in evaluation, TRL calls its reward functions."""
        if self._rows is None:
            graded: Tensor = super()._calculate_rewards(
                inputs, prompts, completions, completion_ids_list
            )
            return graded
        found = [self._engine.graded[row.completion.draw] for row in self._rows]
        logged = [each.logged for each in self._own_part(found)]
        for column in dict.fromkeys(name for row in logged for name in row):
            self._pending_extra_logs[column] = [row.get(column) for row in logged]
        known = [each.rewards for each in found]
        return torch.tensor(known, dtype=torch.float32, device=self.accelerator.device)

    def _with_advantages(
        self, output: dict[str, Any], rows: Sequence[Row], own: Sequence[Row]
    ) -> dict[str, Any]:
        """Replace TRL's advantages; rows that only fill the batch stay out of the loss."""
        advantages = output["advantages"]
        output["advantages"] = advantages.new_tensor([row.advantage for row in own])
        self._logs["advantages"].extend(row.advantage for row in rows)
        if all(row.counts for row in rows):
            return output
        counts = output["completion_mask"].new_tensor([row.counts for row in own])
        output["completion_mask"] = output["completion_mask"] * counts[:, None]
        tokens = self.accelerator.gather(output["completion_mask"].sum()).sum()
        output["num_items_in_batch"] = tokens.clamp(min=1)
        return output

    def _own_part(self, whole: Any) -> Any:
        """Return this process's part of something that is split equally among processes."""
        part = len(whole) // self.accelerator.num_processes
        start = self.accelerator.process_index * part
        return whole[start : start + part]

    def _log_step(self, step: Step) -> None:
        """Add the metrics of a step to those that TRL logs, as `rollwise/...`."""
        for name, value in numbers({"rollwise": step.metrics}).items():
            self._metrics["train"][name].append(value)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save the state of the sampler, from one process, and what TRL saves and uploads."""
        if self.args.should_save:
            checkpoint = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            steps = self.sampling_steps
            save_state(checkpoint / FOLDER, self.prompt_sampler, sampling_steps=steps)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load what TRL loads, and the state of the sampler."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            folder = Path(checkpoint) / FOLDER
            (self.sampling_steps,) = load_state(folder, self.prompt_sampler, "sampling_steps")


def make_rows(groups: Sequence[TrainedGroup], count: int, size: int) -> list[Row]:
    """Lay out `count` groups of `size` rows each, prompt by prompt.

    Groups with signal come first. Where there are too few, the other groups fill the batch with
    rows that do not enter the loss. A group that is too small is filled up in the same way.
    """
    drawn = sorted((g for g in groups if len(g.pool)), key=lambda group: group.dropped)
    if not drawn:
        raise RuntimeError(
            f"no response to any of the step's {len(groups)} prompts has a reward: reward "
            "functions abstained (None) on all"
        )
    blocks = [_block(group, size) for group in drawn[:count]]
    missing = count - len(blocks)
    fillers = [[replace(row, advantage=0.0, counts=False) for row in block] for block in blocks]
    blocks += [fillers[i % len(fillers)] for i in range(missing)]
    return [row for block in blocks for row in block]


def _block(group: TrainedGroup, size: int) -> list[Row]:
    rows = [
        Row(response, float(advantage), counts=not group.dropped)
        for response, advantage in zip(group.responses, group.advantages, strict=True)
    ]
    return rows + [Row(group.pool.responses[0], 0.0, counts=False)] * (size - len(rows))
