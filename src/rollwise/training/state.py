"""Everything a run works with."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from rollwise.config import TrainConfig
from rollwise.config.step import step_recipe
from rollwise.engines import Engine
from rollwise.grading import Grader
from rollwise.plugins import wrong_result
from rollwise.prompts import PromptSampler
from rollwise.records import RunFolder, Trackers
from rollwise.sampling import RolloutSession
from rollwise.sampling.draws import Key
from rollwise.statistics.curves import COSTS, Spent
from rollwise.step import Prompts, RolloutCost, StepRecipe, grade_with, run_session
from rollwise.training.backend import StepLearner


@dataclass
class Run:
    """Everything a run works with."""

    config: TrainConfig
    folder: RunFolder  # holds the run's records and checkpoints
    trackers: Trackers  # receive the metrics as well
    sampler: PromptSampler
    engine: Engine
    grader: Grader
    learner: StepLearner
    tokenizer: PreTrainedTokenizerBase  # saved with the model
    prompts: Prompts  # training and held out
    answers: Mapping[Key, str]  # the reference answer to each
    heldout: Sequence[Key]
    questions: Mapping[Key, str]  # the text of each prompt, for people to read
    step: int = 0  # the number of steps done
    spent: Spent = field(default_factory=lambda: dict.fromkeys(COSTS, 0.0))
    # Marks the drawing of responses, which may raise `Dropped` then (`StopRequest`).
    droppable: Callable[[], AbstractContextManager[None]] = nullcontext
    # Closes the engine and the grader.
    parts: AbstractContextManager[object] = field(default_factory=nullcontext)
    recipe: StepRecipe = field(init=False)

    def __post_init__(self) -> None:
        self.recipe = step_recipe(self.config)

    @property
    def ended(self) -> bool:
        """Whether the run is at its end: by steps, tokens, seconds or visits."""
        return self._share_done >= 1.0 or self.sampler.exhausted

    @property
    def expected_steps(self) -> int | None:
        """The steps of the whole run, by what those so far have cost; None if nothing is known."""
        if self._share_done == 0.0:
            return None if self.config.tokens or self.config.seconds else self.config.steps
        return round(self.step / self._share_done)

    @property
    def _share_done(self) -> float:
        """The share spent of the steps, the tokens or the seconds, whichever is largest."""
        limits = {"tokens": self.config.tokens, "seconds": self.config.seconds}
        shares = [self.spent[name] / limit for name, limit in limits.items() if limit is not None]
        return max([self.step / self.config.steps, *shares])

    def roll_out(self, session: RolloutSession) -> RolloutCost:
        """Draw and grade until every prompt of `session` has ended, or it is dropped."""
        if unknown := [key for key in session.pools if key not in self.prompts]:
            raise wrong_result(self.sampler, "ask", "keys of the data", unknown[0])
        grade = grade_with(self.grader, self.answers)
        limits = self.config.stall_limit, self.config.engine.max_new_tokens
        with self.droppable():
            return run_session(session, self.engine, self.prompts, grade, *limits)
