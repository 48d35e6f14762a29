"""Everything a run works with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from rollwise.config import TrainConfig
from rollwise.config.step import step_recipe
from rollwise.engines import Engine
from rollwise.engines.engine import Prompts
from rollwise.engines.rollout import grade_with, run_session
from rollwise.grading import Grader
from rollwise.prompts import PromptSampler
from rollwise.records import RunFolder, Trackers
from rollwise.sampling import RolloutSession
from rollwise.sampling.draws import Key
from rollwise.step import RolloutCost, StepRecipe
from rollwise.training.backend import StepLearner


@dataclass
class Run:
    """Everything a run works with.

    Attributes:
        config: The settings.
        folder: Holds the run's records and checkpoints.
        trackers: Receive the metrics as well.
        sampler: Chooses prompts.
        engine: Draws responses.
        grader: Gives them rewards.
        learner: Updates the model.
        tokenizer: Saved with the model.
        prompts: Token ids of every prompt, training and held out.
        answers: The reference answer to each.
        heldout: The held-out prompts.
        questions: The text of each prompt, for people to read.
        step: The number of steps done.
    """

    config: TrainConfig
    folder: RunFolder
    trackers: Trackers
    sampler: PromptSampler
    engine: Engine
    grader: Grader
    learner: StepLearner
    tokenizer: PreTrainedTokenizerBase
    prompts: Prompts
    answers: Mapping[Key, str]
    heldout: Sequence[Key]
    questions: Mapping[Key, str]
    step: int = 0

    @property
    def recipe(self) -> StepRecipe:
        """How each step's prompts are sampled, and what is learned from them."""
        return step_recipe(self.config)

    def roll_out(self, session: RolloutSession) -> RolloutCost:
        """Draw and grade until every prompt of `session` has ended.

        Raises:
            ValueError: The sampler chose a prompt that is not in the data.
        """
        for key in session.pools:
            if key not in self.prompts:
                sampler = type(self.sampler).__name__
                raise ValueError(f"{sampler}.ask returned {key!r}, which is no prompt of the data")
        grade = grade_with(self.grader, self.answers)
        return run_session(session, self.engine, self.prompts, grade)
