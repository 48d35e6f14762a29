"""Start and resume runs: everything that a run works with."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from rollwise import loops
from rollwise.config import TrainConfig
from rollwise.config.step import make_sampler, step_recipe
from rollwise.engines import Engine
from rollwise.errors import ConfigError
from rollwise.files import damaged_files, list_checkpoints
from rollwise.grading.grader import Grader, Row
from rollwise.models.loading import describe_device
from rollwise.plugins import wrong_result
from rollwise.prompts import PromptSampler
from rollwise.records import RunFolder, Trackers
from rollwise.records.fingerprints import refuse_other_data
from rollwise.records.folder import describe_start
from rollwise.sampling import RolloutSession
from rollwise.sampling.draws import Key
from rollwise.statistics.curves import COSTS, Spent, spent_until_each
from rollwise.step import Prompts, RolloutCost, StepRecipe, draw_session, grade_with
from rollwise.tasks import Problem
from rollwise.tasks.columns import feature_columns
from rollwise.training.build import StepLearner, build
from rollwise.training.checkpoints import check_checkpoint, load_checkpoint, prune_checkpoints
from rollwise.training.data import fingerprints, load_data, read_both

log = logging.getLogger(__name__)


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
    row: Callable[[Key], Row] | None = None  # what else a grader may be given of each
    step: int = 0  # the number of steps done
    spent: Spent = field(default_factory=lambda: dict.fromkeys(COSTS, 0.0))
    stopped: bool = False  # by an observer, which makes the newest step its end
    # Marks the drawing of responses, which may raise `Dropped` then (`StopRequest`).
    droppable: Callable[[], AbstractContextManager[None]] = nullcontext
    # Closes the engine and the grader.
    built: AbstractContextManager[object] = field(default_factory=nullcontext)
    recipe: StepRecipe = field(init=False)

    def __post_init__(self) -> None:
        self.recipe = step_recipe(self.config)

    @property
    def ended(self) -> bool:
        """Whether the run is at its end: by steps, tokens, seconds, visits or an observer."""
        return self.stopped or self._share_done >= 1.0 or self.sampler.exhausted

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
        with self.droppable():
            drawing = draw_session(
                session,
                self.engine,
                self.prompts,
                grade_with(self.grader, self.answers, self.row),
                stall_limit=self.config.stall_limit,
                max_new_tokens=self.config.engine.max_new_tokens,
            )
            return loops.run(drawing)


def resume_run(config: TrainConfig, folder: RunFolder) -> Run:
    """Set up a run to resume from its newest checkpoint; there is one."""
    found = list_checkpoints(folder.checkpoints)
    check_checkpoint(found[-1], found[-2] if len(found) > 1 else None)
    prune_checkpoints(folder.checkpoints, config.checkpoint.keep)  # what a kill has left
    return start_run(config, folder, checkpoint=found[-1])


def start_run(config: TrainConfig, folder: RunFolder, checkpoint: Path | None = None) -> Run:
    """Set up a run; the folder of a new one is created last, when everything else has worked."""
    read = read_both(config)  # before the model, which takes longer
    now, before = fingerprints(config, read), folder.read_about("read") if checkpoint else {}
    refuse_other_data(folder.path, before, now)
    built = build(config, checkpoint)
    data = load_data(built, read)
    columns = feature_columns(data.train, data.prompts)
    sampler = make_sampler(config, [problem.key for problem in data.train], columns)
    grader, learner = (
        built.grader,
        built.backend.learner,
    )  # before a folder is made, because it may fail to start
    settings = asdict(config)
    trackers = Trackers(config.records.trackers)
    step, spent = 0, dict.fromkeys(COSTS, 0.0)
    if checkpoint is not None:
        step = load_checkpoint(checkpoint, learner, sampler)
        spent = _resumed(config, folder, checkpoint, step)
    engine = built.engine
    if checkpoint is None:
        folder.create(settings, started=describe_start(_where(config)), read=now)
    else:
        folder.remove_summary()
        start = {"step": step, **describe_start(_where(config))}
        resumed = [*folder.read_about("resumed"), start]
        folder.write_config(settings, read=now | before, resumed=resumed)
        if found := folder.read_metrics()[-1].get("engine_batch_size"):
            engine.limit_slots(found)
    trackers.start(folder.path, settings)
    problems: dict[Key, Problem] = {each.key: each for each in [*data.train, *data.heldout]}
    return Run(
        config=config,
        built=built,
        folder=folder,
        trackers=trackers,
        sampler=sampler,
        engine=engine,
        grader=grader,
        learner=learner,
        tokenizer=built.backend.tokenizer,
        prompts=data.prompts,
        answers={key: problem.answer for key, problem in problems.items()},
        row=lambda key: problems[key].row,
        heldout=[problem.key for problem in data.heldout],
        questions={key: problem.question for key, problem in problems.items()},
        step=step,
        spent=spent,
    )


def _resumed(config: TrainConfig, folder: RunFolder, checkpoint: Path, step: int) -> Spent:
    """Take a run's records back to the step of its checkpoint; returns what it has spent."""
    if config.steps < step:
        raise ConfigError(
            f"`steps` must be at least {step}, for the run in {folder.path} has done {step}; "
            f"it is {config.steps}"
        )
    if what := ", ".join(damaged_files(folder.path)):
        log.warning("%s: %s is missing, or was modified", folder.path, what)
    folder.discard_after(step, checkpoint / "run" / "metrics.jsonl")
    *_, spent = spent_until_each(folder.read_metrics())
    return spent


def _where(config: TrainConfig) -> str:
    backend = config.backend.type
    return describe_device(config.model.device) if backend == "local" else str(backend)
