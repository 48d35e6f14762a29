"""verl's rollout workers, with a session for each prompt."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import ray
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from rollwise.config.step import step_recipe
from rollwise.errors import RunError
from rollwise.integrations.verl.client import SEEDED
from rollwise.integrations.verl.reports import Order, PromptReport
from rollwise.integrations.verl.rollout import run_session
from rollwise.integrations.verl.settings import LAST_TURN, NAME, OLDEST, settings_of
from rollwise.sampling import Draw, Group, Pool
from rollwise.sampling.objectives import advantages_by
from rollwise.step import Episode, StepRecipe, TrainedGroup, Usage, make_group
from rollwise.step.episodes import spans_by_mask

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded(Episode):
    """What an agent loop made of a draw, with what verl needs to train on it."""

    draw: Draw
    text: str  # one line per turn; empty if it is not recorded
    reward: float
    outputs: Sequence[Any]  # verl's own form of the response: one or more rows to train on
    fields: dict[str, Any]  # what verl stores beside it
    weights: tuple[int, int]  # the versions that drew its first and its last token


class SessionWorker:
    """Overrides of verl's `AgentLoopWorkerTQ`; validation is left as it is."""

    config: Any
    tokenizer: Any

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.recipe: StepRecipe = step_recipe(settings_of(self.config))
        self.mode: str = OmegaConf.select(self.config, "trainer.v1.trainer_mode", default="sync")
        self.most_off_policy: int = OmegaConf.select(self.config, OLDEST, default=1) - 1

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
            order = Order(**prompt.pop(NAME))
            report = await self._sample(order, prompt, sampling_params, trajectory, trace)
            tag = {"status": "finished", NAME: asdict(report)}
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
        """Sample a prompt and store its group's rows."""
        priors = None if order.prior is None else [order.prior]
        session = self.recipe.session([order.key], order.step, priors=priors)
        pool, drawn = session.pools[order.key], list[Graded]()
        seeded = self.config.actor_rollout_ref.rollout.name in SEEDED

        def too_old() -> bool:
            """Whether a new draw would wait for weights that are too new for the oldest one."""
            versions = [version for graded in drawn for version in graded.weights]
            return len(pool) > 0 and max(versions) - min(versions) >= self.most_off_policy

        async def respond(draw: Draw) -> tuple[float, Graded]:
            params = sampling_params | ({"seed": draw.seed} if seeded else {})
            outputs, fields = await self._run_agent_loop(  # type: ignore[attr-defined]
                params, trajectory=trajectory, trace=trace, session_id=draw.index, **prompt
            )
            drawn.append(graded := self._graded(draw, outputs, fields, order.recorded))
            # Sampling is steered by correctness as graded (`acc`), and the policy learns from the
            # score, which may be shaped, for instance by length.
            accuracy = outputs[-1].extra_fields.get("reward_extra_info", {}).get("acc")
            return graded.reward if accuracy is None else float(accuracy), graded

        await run_session(session, respond, None if self.mode == "sync" else too_old)
        if not len(pool):
            raise RunError("none of its draws could be completed")
        group = by_scores(self.recipe, make_group(self.recipe, pool))
        for chosen in group.responses:
            await super()._agent_loop_postprocess(chosen.outputs, False, **chosen.fields)  # type: ignore[misc]
        answer = str(prompt.get("reward_model", {}).get("ground_truth", ""))
        question = str(prompt["raw_prompt"][-1]["content"])
        records = list(group.records(session.step, question, answer)) if order.recorded else []
        tokens = sum(graded.usage.tokens for graded in drawn)
        return PromptReport.of(session, group, tokens, records)

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **fields: Any) -> Any:
        """Grade a response and hand it back; verl would store it for training right away."""
        outputs = output if isinstance(output, list) else [output]
        if outputs:
            outputs[-1].extra_fields[LAST_TURN] = last_turn(outputs[-1].response_mask)
        if validate:
            return await super()._agent_loop_postprocess(output, validate, **fields)  # type: ignore[misc]
        needs_logprobs = self.mode != "sync" or self.recipe.normalize_gradients
        if wrong := unusable(outputs, needs_logprobs):
            raise ValueError(f"the agent loop {wrong}")
        await self._compute_score(outputs, kwargs=fields)  # type: ignore[attr-defined]
        return outputs, fields

    def _graded(
        self, draw: Draw, outputs: Sequence[Any], fields: dict[str, Any], with_text: bool
    ) -> Graded:
        final = outputs[-1]
        if final.reward_score is None:
            raise ValueError("neither the agent loop nor a grader gave the response a reward")
        rows = [
            (o.prompt_ids, spans_by_mask(o.response_ids, o.response_mask, o.response_logprobs))
            for o in outputs
        ]
        spans = [span for _, part in rows for span in part]
        own = [span for span in spans if span.logprobs is not None]
        said = (self.tokenizer.decode(s.tokens, skip_special_tokens=True) for s in spans)
        full = len(final.response_ids) >= self.config.actor_rollout_ref.rollout.response_length
        cut = full and final.response_ids[-1] != self.tokenizer.eos_token_id
        return Graded(
            spans=rows[0][1],
            branches=rows[1:],
            usage=Usage(sum(len(span.tokens) for span in own), turns=len(own)),
            end="truncated" if cut else "done",
            reward=float(final.reward_score),
            draw=draw,
            text="\n".join(said) if with_text else "",
            outputs=outputs,
            fields=fields,
            weights=(
                int(outputs[0].extra_fields["min_global_steps"]),
                int(final.extra_fields["max_global_steps"]),
            ),
        )


def last_turn(mask: Sequence[int]) -> tuple[int, int]:
    """Return where the model's last turn begins and ends in a row; it is what is graded."""
    stop = max((place for place, drawn in enumerate(mask, 1) if drawn), default=0)
    start = max((place for place, drawn in enumerate(mask[:stop], 1) if not drawn), default=0)
    return start, stop


def by_scores(recipe: StepRecipe, group: TrainedGroup) -> TrainedGroup:
    """Compute a group's advantages from scores, if these differ from the pool's rewards.

    The responses are `Graded`. An objective that ignores rewards keeps its advantages.
    """
    objective, pool = recipe.resolved_objective, group.pool
    scores = [response.reward for response in pool.responses]
    if not objective.looks_at_rewards or scores == pool.rewards.tolist():
        return group
    scored = Pool(pool.key, scores, pool.responses, pool.positive_threshold)
    scored.exit_reason, scored.prior, scored.stopping = pool.exit_reason, pool.prior, pool.stopping
    members = Group(group.members.indices, scored.rewards[group.members.indices])
    return replace(group, advantages=advantages_by(objective, scored, members))


def unusable(outputs: Sequence[Any], needs_logprobs: bool) -> str | None:
    """Say what is missing in what an agent loop returned; None if it can be trained on."""
    if not outputs or not outputs[-1].response_ids:
        return "returned no response"
    for output in outputs:
        logprobs, length = output.response_logprobs, len(output.response_ids)
        if {len(output.response_mask), len(logprobs or output.response_ids)} != {length}:
            return "returned a response_mask or response_logprobs of another length than its tokens"
        if not any(output.response_mask):
            return "returned a row of which the model drew no token (response_mask is 0 throughout)"
        if needs_logprobs and not logprobs:
            return "returned no response_logprobs (docs/verl.md says what needs them)"
        if None in (output.extra_fields.get(f"{end}_global_steps") for end in ("min", "max")):
            return "returned no min_global_steps and max_global_steps in extra_fields"
    return None


class SessionLoopManager(AgentLoopManagerTQ):
    """verl's agent-loop manager, with our workers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)

        # Empty, because Ray sends a class to the workers by value if it inherits from the class
        # inside an actor class.
        class SessionLoopWorker(SessionWorker, AgentLoopWorkerTQ.__ray_actor_class__):
            pass

        self.agent_loop_workers_class = ray.remote(SessionLoopWorker)
