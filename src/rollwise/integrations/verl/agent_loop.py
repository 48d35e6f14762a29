"""verl's rollout workers, with a session for each prompt."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import ray
import transfer_queue as tq
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from rollwise.config.step import step_recipe
from rollwise.engines import Completion
from rollwise.integrations.verl.client import SEEDED
from rollwise.integrations.verl.reports import Order, PromptReport
from rollwise.integrations.verl.rollout import run_session
from rollwise.integrations.verl.settings import NAME, settings_of
from rollwise.sampling import Draw, Group, Pool, RolloutSession, draw_seed
from rollwise.step import StepRecipe, TrainedGroup, make_group
from rollwise.step.ledger import group_ledger
from rollwise.step.metrics import ResponseFigures

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Graded(Completion):
    """A response, with what verl needs to train on it.

    Attributes:
        score: Its reward; verl's word.
        outputs: verl's own form of the response.
        fields: What verl stores beside it.
    """

    score: float
    outputs: Sequence[Any]
    fields: dict[str, Any]


class SessionWorker:
    """Overrides of verl's `AgentLoopWorkerTQ`; validation is left as it is."""

    config: Any
    tokenizer: Any

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.recipe: StepRecipe = step_recipe(settings_of(self.config))

    async def _run_prompt(
        self,
        prompt: dict[str, Any],
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        trace: bool = False,
    ) -> None:
        """Sample one prompt to its end, and store the group that is trained on."""
        if trajectory["validate"]:
            prompt.pop(NAME, None)
            await super()._run_prompt(prompt, sampling_params, trajectory, trace)  # type: ignore[misc]
            return
        uid = prompt["uid"]
        await tq.async_kv_put(key=uid, partition_id="train", tag={"status": "running"})
        try:
            order = prompt.pop(NAME)
            report = await self._sample(order, prompt, sampling_params, trajectory, trace)
            tag = {"status": "finished", NAME: report.as_tag()}
        except Exception:
            log.exception("prompt %s failed", uid)
            tag = {"status": "failure"}
        await tq.async_kv_put(key=uid, partition_id="train", tag=tag)

    async def _sample(
        self,
        order: Order,
        prompt: dict[str, Any],
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        trace: bool,
    ) -> PromptReport:
        session = new_session(self.recipe, order, int(trajectory["step"]))
        tokens = 0

        async def respond(draw: Draw) -> tuple[float, Graded]:
            nonlocal tokens
            params = dict(sampling_params)
            if self.config.actor_rollout_ref.rollout.name in SEEDED:
                params["seed"] = draw.seed
            outputs, fields = await self._run_agent_loop(  # type: ignore[attr-defined]
                params, trajectory=trajectory, trace=trace, session_id=draw.index, **prompt
            )
            graded = self._graded(draw, outputs, fields, order.recorded)
            tokens += len(graded.tokens)
            return correctness(graded), graded

        await run_session(session, respond)
        pool = session.pools[order.key]
        if not len(pool):
            raise RuntimeError("none of its draws could be completed")
        group = choose(self.recipe, pool, session.step)
        for chosen in group.responses:
            await super()._agent_loop_postprocess(chosen.outputs, False, **chosen.fields)  # type: ignore[misc]
        records = []
        if order.recorded:
            answer = str(prompt.get("reward_model", {}).get("ground_truth", ""))
            question = str(prompt["raw_prompt"][-1]["content"])
            records = list(group.records(session.step, question, answer))
        return report(session, group, self.recipe.group_size, tokens, records)

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **fields: Any) -> Any:
        """Grade a response and hand it back; verl would store it for training right away."""
        if validate:
            return await super()._agent_loop_postprocess(output, validate, **fields)  # type: ignore[misc]
        outputs = output if isinstance(output, list) else [output]
        if not outputs or not outputs[-1].response_ids:
            raise ValueError("the agent loop returned no response")
        await self._compute_score(outputs, kwargs=fields)  # type: ignore[attr-defined]
        return outputs, fields

    def _graded(
        self, draw: Draw, outputs: Sequence[Any], fields: dict[str, Any], with_text: bool
    ) -> Graded:
        final = outputs[-1]
        tokens = [t for t, own in zip(final.response_ids, final.response_mask, strict=True) if own]
        full = len(final.response_ids) >= self.config.actor_rollout_ref.rollout.response_length
        text = self.tokenizer.decode(tokens, skip_special_tokens=True) if with_text else ""
        return Graded(
            draw,
            tokens,
            np.array(final.response_logprobs or [], dtype=np.float32),
            text,
            truncated=full and final.response_ids[-1] != self.tokenizer.eos_token_id,
            score=float(final.reward_score),
            outputs=outputs,
            fields=fields,
        )


def new_session(recipe: StepRecipe, order: Order, step: int) -> RolloutSession:
    """Start to sample one prompt."""
    priors = None if order.prior is None else [order.prior]
    return recipe.session([order.key], step, priors=priors)


def correctness(response: Graded) -> float:
    """Return what the exit rule looks at: correctness as graded (`acc`), or else the score.

    A score may be shaped, for instance by length. Sampling is steered by correctness, and the
    policy learns from the score.
    """
    accuracy = response.outputs[-1].extra_fields.get("reward_extra_info", {}).get("acc")
    return response.score if accuracy is None else float(accuracy)


def choose(recipe: StepRecipe, pool: Pool, step: int) -> TrainedGroup:
    """Choose a pool's group, with the advantages of the scores where an objective compares them."""
    rng = np.random.default_rng(draw_seed(recipe.seed, step, pool.key, 0))
    group = make_group(recipe, pool, rng)
    scores = [response.score for response in pool.responses]
    objective = recipe.resolved_objective
    if not objective.looks_at_rewards or scores == pool.rewards.tolist():
        return group
    scored = Pool(pool.key, scores, pool.responses, positive_threshold=pool.positive_threshold)
    indices = group.members.indices
    values = objective.advantages(scored, Group(indices, scored.rewards[indices]))
    return replace(group, advantages=values)


def report(
    session: RolloutSession, group: TrainedGroup, first: int, tokens: int, records: list[Any]
) -> PromptReport:
    """Summarise the sampling of a prompt for the driver.

    Args:
        session: Of this prompt alone.
        group: The prompt's group.
        first: The draws that count as first.
        tokens: Of all responses.
        records: Its responses as rows, if they are to be recorded.
    """
    pool = group.pool
    figures = [ResponseFigures.of(response) for response in pool.responses[:first]]
    members = group.members.indices.tolist()
    return PromptReport(
        key=pool.key,
        rewards=pool.rewards.tolist(),
        exit_reason=pool.exit_reason or "exhausted",
        members=members,
        advantages=[
            [pool.responses[place].draw.index, value]
            for place, value in zip(members, group.advantages.tolist(), strict=True)
        ],
        dropped=group.dropped,
        first=[[f.tokens, f.surprisal, f.truncated] for f in figures],
        tokens=tokens,
        surplus=session.surplus,
        failures=session.failures,
        lost=session.lost,
        ledger=group_ledger(group),
        records=records,
    )


def worker_class() -> Any:
    """Make the Ray actor class of the workers.

    The class is made here, and holds no code of its own, because Ray sends a class that inherits
    from the class inside an actor class to the workers by value.
    """

    class SessionLoopWorker(SessionWorker, AgentLoopWorkerTQ.__ray_actor_class__):
        pass

    return ray.remote(SessionLoopWorker)


class SessionLoopManager(AgentLoopManagerTQ):
    """verl's agent-loop manager, with our workers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.agent_loop_workers_class = worker_class()
