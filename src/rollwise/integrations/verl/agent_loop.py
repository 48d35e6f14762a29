"""verl's rollout workers, with a session for each prompt."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import ray
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from rollwise.config.step import step_recipe
from rollwise.errors import RunError
from rollwise.integrations.verl.client import SEEDED
from rollwise.integrations.verl.reports import Order, PromptReport
from rollwise.integrations.verl.settings import LAST_TURN, NAME, OLDEST, settings_of
from rollwise.sampling import Draw, Score
from rollwise.step import LostDraw, Response, StepRecipe, draw_session, make_group

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, kw_only=True)
class Graded(Response):
    """What an agent loop made of a draw, with what verl needs to train on it.

    Its `reward` is a `Score`: what the policy learns from, and `acc`, which steers sampling.
    """

    outputs: Sequence[Any]  # verl's own form of the response: one or more rows to train on
    fields: dict[str, Any]  # what verl stores beside it
    weights: tuple[int, int]  # the versions that drew its first and its last token


@dataclass
class LoopEngine:
    """Draws by verl's agent loops, which grade too; whatever one raises loses its draw."""

    play: Callable[[Draw], Awaitable[Graded]]
    slots: int | None
    drawn: list[Graded] = field(default_factory=list)

    async def complete(self, draw: Draw, prompt: Sequence[int]) -> Graded:
        """See `rollwise.engines.Engine`."""
        try:
            graded = await self.play(draw)
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LostDraw(f"{draw} failed: {error!r}") from error
        self.drawn.append(graded)
        return graded


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
            options = {"trajectory": trajectory, "trace": trace}
            report = await self._sample(order, prompt, sampling_params, **options)
            tag = {"status": "finished", NAME: asdict(report)}
        except Exception:
            log.exception("prompt %s failed", uid)
            tag = {"status": "failure"}
        await tq.async_kv_put(key=uid, partition_id="train", tag=tag)

    async def _sample(
        self, order: Order, prompt: dict[str, Any], params: dict[str, Any], **options: Any
    ) -> PromptReport:
        """Sample a prompt and store its group's rows."""
        priors = None if order.prior is None else [order.prior]
        session = self.recipe.session([order.key], order.step, priors=priors)
        pool, schedule = session.pools[order.key], session.schedule
        seeded = self.config.actor_rollout_ref.rollout.name in SEEDED

        async def play(draw: Draw) -> Graded:
            own = params | ({"seed": draw.seed} if seeded else {})
            outputs, fields = await self._run_agent_loop(  # type: ignore[attr-defined]
                own, session_id=draw.index, **options, **prompt
            )
            return self._graded(draw, outputs, fields, order.recorded)

        engine = LoopEngine(play, schedule.max_samples if schedule.draws_ahead else None)

        def too_old() -> bool:
            """Whether a new draw would wait for weights that are too new for the oldest one."""
            versions = [version for graded in engine.drawn for version in graded.weights]
            stale = bool(versions) and max(versions) - min(versions) >= self.most_off_policy
            return self.mode != "sync" and len(pool) > 0 and stale

        cost = await draw_session(session, engine, {}, reward_of, too_old=too_old)
        if not len(pool):
            raise RunError("none of its draws could be completed")
        group = make_group(self.recipe, pool)
        for chosen in group.responses:
            await super()._agent_loop_postprocess(chosen.outputs, False, **chosen.fields)  # type: ignore[misc]
        answer = str(prompt.get("reward_model", {}).get("ground_truth", ""))
        question = str(prompt["raw_prompt"][-1]["content"])
        records = list(group.records(session.step, question, answer)) if order.recorded else []
        return PromptReport.of(session, group, cost.tokens, records)

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
        turns = [turn for output in outputs for turn in turns_of(output)]
        said = (self.tokenizer.decode(tokens, skip_special_tokens=True) for _, tokens in turns)
        first, info = outputs[0].extra_fields, final.extra_fields.get("reward_extra_info", {})
        full = len(final.response_ids) >= self.config.actor_rollout_ref.rollout.response_length
        return Graded(
            **row_of(outputs[0]),
            branches=[(output.prompt_ids, Response(**row_of(output))) for output in outputs[1:]],
            turns=sum(drawn for drawn, _ in turns),
            truncated=full and final.response_ids[-1] != self.tokenizer.eos_token_id,
            reward=Score.of({**info, "score": final.reward_score}),
            transcript="\n".join(said) if with_text else None,
            draw=draw,
            outputs=outputs,
            fields=fields,
            weights=(int(first["min_global_steps"]), int(final.extra_fields["max_global_steps"])),
        )


async def reward_of(draw: Draw, response: Response) -> Any:
    """Return the reward that an agent loop's response has."""
    return response.reward


def row_of(output: Any) -> dict[str, Any]:
    """Return what a `Response` has of a row of verl's."""
    logprobs = np.array(output.response_logprobs or (), np.float32)
    mask = np.array(output.response_mask, bool)
    return {"tokens": output.response_ids, "logprobs": logprobs, "mask": mask}


def turns_of(output: Any) -> Iterator[tuple[bool, list[int]]]:
    """Split a row into turns: whether the model drew one, and its tokens."""
    pairs = zip(output.response_mask, output.response_ids, strict=True)
    for drawn, turn in groupby(pairs, key=lambda pair: bool(pair[0])):
        yield drawn, [token for _, token in turn]


def last_turn(mask: Sequence[int]) -> tuple[int, int]:
    """Return where the model's last turn begins and ends in a row; it is what is graded."""
    stop = max((place for place, drawn in enumerate(mask, 1) if drawn), default=0)
    start = max((place for place, drawn in enumerate(mask[:stop], 1) if not drawn), default=0)
    return start, stop


def unusable(outputs: Sequence[Any], needs_logprobs: bool) -> str | None:
    """Describe what is missing in what an agent loop returned; None if it can be trained on."""
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
