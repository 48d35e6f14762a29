"""`GRPOTrainer` with adaptive sampling: which prompts, and how many responses each."""

import inspect
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOTrainer

from rollwise import loops
from rollwise.engines import BatchEngine, Response
from rollwise.engines.transformers import TransformersEngine
from rollwise.integrations.trl.engines import Graded, SharedEngine, TRLEngine
from rollwise.integrations.trl.methods import announcement, method_sampling
from rollwise.integrations.trl.options import (
    AdaptiveSampling,
    Total,
    check_arguments,
    check_settings,
    reports_logprobs,
    takes_own_engine,
)
from rollwise.integrations.trl.state import FOLDER, SavedSampler, message_of, prompt_tokens
from rollwise.records import numbers
from rollwise.records.states import load_state
from rollwise.sampling import Draw, RolloutSession
from rollwise.sampling.draws import Key
from rollwise.step import RolloutCost, Step, TrainedGroup, draw_session, take_step


@dataclass(frozen=True)
class Row:
    """A response in TRL's batch; one that does not count only fills it, and has no loss."""

    draw: Draw
    response: Response
    advantage: float
    counts: bool


class AdaptiveGRPOTrainer(GRPOTrainer):
    """TRL's `GRPOTrainer` with rollwise's sampling; all its arguments keep their meaning.

    At each generation step it asks its prompt sampler for prompts, draws responses until each
    prompt has enough signal, and passes groups with their advantages to TRL. Their size is
    `num_generations`, or `sampling.group_size`, which the attribute `num_generations` then has too.
    The sampler gets the pass rates before it is asked again. The rows of TRL's data loader and
    `shuffle_dataset` are ignored, because the sampler chooses the prompts. Evaluation is TRL's own.

    At its start it prints what it does, and what differs from what was tested.

    Args:
        method: How prompts are sampled, and what is learned, by a method's name; the configuration
            that goes with it is `grpo_config(method)`.
        sampling: The same in detail; by default `method_sampling(method)`.
        correctness: The name of the reward function that says, by 0 or 1, whether a response is
            correct. Single responses learn from it alone; the others are only logged.
        *args: Those of `GRPOTrainer`.
        **kwargs: Those of `GRPOTrainer`.

    Raises:
        ValueError: A setting of TRL's that cannot be combined with adaptive sampling, by name.
    """

    def __init__(
        self,
        *args: Any,
        method: str = "single",
        sampling: AdaptiveSampling | None = None,
        correctness: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_arguments(inspect.signature(GRPOTrainer).bind_partial(*args, **kwargs).arguments)
        super().__init__(*args, **kwargs)
        if sampling is None:
            sampling = method_sampling(method, self.args.num_generations)
            if not reports_logprobs(self, sampling):
                sampling = replace(sampling, normalize_gradients=False)
        grpo = self.args
        self._recipe = sampling.recipe(grpo)
        check_settings(self, sampling, self._recipe)
        names, weights = self.reward_func_names, self.reward_weights.tolist()
        by_belief = self._recipe.resolved_objective.uses_priors
        self._reward = Total(names, weights, by_belief, correctness)
        if self.is_world_process_zero():
            print(announcement(self, sampling, self._recipe), flush=True)
        # TRL counts epochs and describes groups in its metrics by this attribute. It wants
        # `args.num_generations`, which stays as it is, to be at least 2.
        self.num_generations: int = self._recipe.group_size
        self._groups_per_step = grpo.generation_batch_size // self.num_generations
        size, keys = self._groups_per_step, range(len(self.train_dataset))
        self.prompt_sampler = sampling.prompt_sampler(keys=keys, batch_size=size, seed=grpo.seed)
        self.sampling_steps = 0
        self._prompts: dict[Key, Sequence[int]] = {}
        self._rows: list[Row] | None = None
        self._micro_batches, self._last_micro_batch = 0, math.inf
        self._figures: dict[str, list[float]] = defaultdict(list)
        self._engine = self._make_engine(sampling)
        self.add_callback(SavedSampler(self))

    def _make_engine(self, sampling: AdaptiveSampling) -> SharedEngine:
        rows = sampling.engine_batch_size or (
            self.args.per_device_train_batch_size * self.args.steps_per_generation
        )
        own: BatchEngine
        if takes_own_engine(self, sampling):
            model = self.accelerator.unwrap_model(self.model)
            longest, temperature = self.max_completion_length, self.temperature
            own = TransformersEngine(model, self.processing_class, longest, temperature, rows)
        else:
            own = TRLEngine(self, None if self.use_vllm else rows)
        rank, ranks = self.accelerator.process_index, self.accelerator.num_processes
        return SharedEngine(own, self._grade, gather_object, rank, ranks)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Sample adaptively, and let TRL build its batch from that; evaluation is TRL's own."""
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        rows = self._sample()
        own = self._own_part(rows)
        logprobs = [list(map(float, row.response.logprobs)) for row in own]
        found = {
            "prompt_ids": [list(self._prompts[row.draw.key]) for row in own],
            "completion_ids": [row.response.tokens for row in own],
            "logprobs": logprobs if self.use_vllm else None,
        }
        self._rows = rows
        self.rollout_func: Any = lambda prompts, trainer: found
        try:
            chosen = [self.train_dataset[row.draw.key] for row in own]
            output = super()._generate_and_score_completions(chosen)
        finally:
            self._rows = self.rollout_func = None
        return self._with_advantages(output, rows, own)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Train on a micro-batch; the last one of prompts with `visits` ends training."""
        loss: Tensor = super().training_step(*args, **kwargs)
        self._micro_batches += 1
        self.control.should_training_stop |= self._micro_batches >= self._last_micro_batch
        return loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate as TRL does; before the first step (`eval_on_start`), beliefs begin there."""
        found: dict[str, float] = super().evaluate(*args, **kwargs)
        reward = found.get("eval_reward", math.nan)
        if self.sampling_steps == 0 and 0 <= reward <= 1:  # else it is no pass rate
            self.prompt_sampler.start_at(reward)
        return found

    def _sample(self) -> list[Row]:
        """Take a step of sampling; returns the rows of all processes."""
        self.sampling_steps += 1
        self._prompts.clear()
        self._engine.graded.clear()
        self._engine.load_weights({})  # the engine shares the model, which has been updated
        step = take_step(self._recipe, self.prompt_sampler, self._roll_out, self.sampling_steps)
        self._log_step(step)
        if self.prompt_sampler.exhausted:
            ahead = self.args.steps_per_generation * self.num_iterations
            self._last_micro_batch = self._micro_batches + ahead
        return make_rows(step.groups, self._groups_per_step, self.num_generations)

    def _roll_out(self, session: RolloutSession) -> RolloutCost:
        for key in session.pools:
            prompt, options = self.train_dataset[key]["prompt"], self.chat_template_kwargs
            self._prompts[key] = prompt_tokens(
                self.processing_class, prompt, chat_template=self.chat_template, **options
            )

        async def draw() -> RolloutCost:
            with self.accelerator.autocast():  # of the thread that draws: notebooks have another
                return await draw_session(session, self._engine, self._prompts, self._total)

        cost = loops.run(draw())
        cost.tokens += self._engine.count_abandoned()
        return cost

    def _grade(self, responses: Mapping[Draw, Response]) -> list[Graded]:
        inputs = [self.train_dataset[draw.key] for draw in responses]
        prompts = [row["prompt"] for row in inputs]
        texts: list[Any] = [response.text for response in responses.values()]
        if not isinstance(prompts[0], str):
            tokenizer = self.processing_class
            texts = [
                [message_of(tokenizer, self._prompts[draw.key], response)]
                for draw, response in responses.items()
            ]
        token_ids = [response.tokens for response in responses.values()]
        own = self._own_part(super()._calculate_rewards(inputs, prompts, texts, token_ids))
        logged = {name: values for name, values in self._pending_extra_logs.items() if values}
        self._pending_extra_logs.clear()
        return [
            Graded(tuple(rewards), {name: values[i] for name, values in logged.items()})
            for i, rewards in enumerate(own.double().tolist())
        ]

    async def _total(self, draw: Draw, response: Response) -> float:
        """Add up a response's rewards; for single responses, tell whether it is correct."""
        return self._reward.of(self._engine.graded[draw].rewards)

    def _calculate_rewards(self, *arguments: Any, **named: Any) -> Any:
        """Return the known rewards; in evaluation, TRL calls its reward functions."""
        if self._rows is None:
            return super()._calculate_rewards(*arguments, **named)
        found = [self._engine.graded[row.draw] for row in self._rows]
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
        for name, value in numbers({"rollwise": step.metrics}).items():
            self._figures[name].append(value)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log TRL's figures, and in training those of the generation steps since last time."""
        if self.model.training:
            logs |= {name: float(np.nanmean(values)) for name, values in self._figures.items()}
            self._figures.clear()
        super().log(logs, start_time)

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train; from a checkpoint, with the state of the prompt sampler that is kept in it."""
        folder = resume_from_checkpoint
        if folder is True:
            folder = get_last_checkpoint(self.args.output_dir)
        if folder:
            (self.sampling_steps,) = load_state(
                Path(folder) / FOLDER, self.prompt_sampler, "sampling_steps"
            )
        return super().train(resume_from_checkpoint, *args, **kwargs)


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
    fillers = [[replace(row, advantage=0.0, counts=False) for row in block] for block in blocks]
    blocks += islice(cycle(fillers), count - len(blocks))
    return [row for block in blocks for row in block]


def _block(group: TrainedGroup, size: int) -> list[Row]:
    rows = [
        Row(response.draw, response, float(advantage), counts=not group.dropped)
        for response, advantage in zip(group.responses, group.advantages, strict=True)
    ]
    filler = group.pool.responses[0]
    return rows + [Row(filler.draw, filler, 0.0, counts=False)] * (size - len(rows))
