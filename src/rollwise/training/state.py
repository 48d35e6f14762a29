"""Everything a run works with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from rollwise.config import TrainConfig
from rollwise.engines import Engine
from rollwise.engines.driver import RolloutCost
from rollwise.engines.engine import Prompts
from rollwise.grading import Grader
from rollwise.prompts import BatchSampler, Retiring
from rollwise.records import RunFolder, Trackers
from rollwise.sampling import RolloutSession
from rollwise.sampling.pool import Key
from rollwise.training.backend import StepLearner
from rollwise.training.batches import SamplingPlan
from rollwise.training.rollouts import roll_out


@dataclass
class Run:
    """Everything a run works with.

    Attributes:
        config: The settings.
        folder: Where it is written down.
        trackers: Where metrics also go.
        sampler: Chooses prompts.
        engine: Draws responses.
        grader: Gives them rewards.
        learner: Changes the model.
        tokenizer: Saved with the model.
        prompts: Token ids of every prompt, training and held out.
        answers: The reference answer to each.
        heldout: The held-out prompts.
        questions: What each prompt looks like, for people.
        step: The steps done so far.
    """

    config: TrainConfig
    folder: RunFolder
    trackers: Trackers
    sampler: BatchSampler | Retiring
    engine: Engine
    grader: Grader
    learner: StepLearner
    tokenizer: PreTrainedTokenizerBase
    prompts: Prompts
    answers: Mapping[Key, str]
    heldout: Sequence[Key]
    questions: Mapping[Key, str]
    step: int = 0

    def plan(self) -> SamplingPlan:
        """Say how a step's prompts are chosen and sampled."""
        config = self.config
        return SamplingPlan(
            sampler=self.sampler,
            batch_size=config.prompts.batch_size,
            roll_out=self.roll_out,
            exit_rule=config.exit.make(),
            schedule=config.schedule.make(),
            allocation=None if config.allocation.type == "none" else config.allocation.make(),
            refills=config.group.refills if config.group.unresolved == "refill" else 0,
            total_draws=config.schedule.total_draws,
            positive_threshold=config.grading.positive_threshold,
            seed=config.seed,
        )

    def roll_out(self, session: RolloutSession) -> RolloutCost:
        """Draw and grade until every prompt of `session` has ended."""
        return roll_out(session, self.engine, self.grader, self.prompts, self.answers)
