"""Everything a run works with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from rollwise.config import TrainConfig
from rollwise.engines import Engine
from rollwise.engines.engine import Prompts
from rollwise.grading import Grader
from rollwise.prompts import BatchSampler, Retiring
from rollwise.records import RunFolder, Trackers
from rollwise.sampling.pool import Key
from rollwise.training.learner import Learner


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
    learner: Learner
    tokenizer: PreTrainedTokenizerBase
    prompts: Prompts
    answers: Mapping[Key, str]
    heldout: Sequence[Key]
    questions: Mapping[Key, str]
    step: int = 0
