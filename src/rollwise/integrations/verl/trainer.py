"""verl's trainers, with prompts from a sampler and advantages from whole pools.

In the asynchronous ones sampling continues while the policy is updated. A prompt's session lives in
its worker, across updates. Its draws may come from different policies, and one draw from several if
an update interrupted it; the log-probability of each token is that of the policy that drew it. The
step that uses a prompt tells the sampler and counts its draws, so prompts under way at a checkpoint
are in no figure yet: verl's queue later hands over those that have ended, and asks for the others
again, with the same seeds.
"""

import uuid
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from rollwise.config.step import make_sampler, step_recipe
from rollwise.errors import ConfigError, RunError
from rollwise.integrations.verl.client import CancellingClient, ResumingClient
from rollwise.integrations.verl.data import read_prompts
from rollwise.integrations.verl.records import Recorder, seconds
from rollwise.integrations.verl.reports import Order, PromptReport
from rollwise.integrations.verl.settings import NAME, TRAINERS, check, check_steps, settings_of
from rollwise.integrations.verl.upstream import UPSTREAM
from rollwise.records import Row, numbers
from rollwise.records.states import load_state, save_state
from rollwise.releases import unmet
from rollwise.sampling.draws import Key
from rollwise.statistics import evaluation
from rollwise.step import RolloutCost, Rollouts, TrainedGroup
from rollwise.step.asking import ask, session_arguments
from rollwise.step.step import conclude, make_groups


class PoolTrainer(PPOTrainer):
    """verl's trainer, which asks a sampler for prompts, and tells it their pass rates."""

    mode: ClassVar[str]  # verl's name of the trainer
    client: ClassVar[type[CancellingClient]] = ResumingClient

    def __init__(self, config: Any) -> None:
        if reason := unmet("verl", UPSTREAM):
            raise ConfigError(reason)
        self.settings = settings_of(config)
        self.recipe = step_recipe(self.settings)
        check(config, self.settings, self.mode)
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.mode  # verl's base class compares it
        super().__init__(config)
        ADV_ESTIMATOR_REGISTRY[NAME] = self._advantages
        self._row_advantages: list[float] = []
        self._under_way: dict[str, Key] = {}  # verl's name -> key, of prompts that no step has used
        self._used: dict[str, tuple[PromptReport, TrainedGroup]] = {}
        self._figures: Row = {}
        self._heldout: Row | None = None
        self.recorder = Recorder(self.settings, config[NAME].output)

    # Prompts.

    def on_init_end(self) -> None:
        """Make the sampler, and load its state if a checkpoint has been loaded."""
        rows = self.train_dataset.dataframe
        self.places, columns = read_prompts(rows, self.config.data.prompt_key)
        keys = list(self.places)
        self.sampler = make_sampler(self.settings, keys, columns)
        check_steps(self.settings, self.total_training_steps, len(keys))
        if self.global_steps:
            self._load_state()
        super().on_init_end()

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        """Ask for prompts that are not under way; verl's own data loader is not used."""
        wanted = num_prompts or self.settings.prompts.batch_size
        busy = set(self._under_way.values())
        keys: list[Any] = ask(self.sampler, wanted, busy)
        if len(keys) < wanted:
            raise RunError(
                f"verl asks for {wanted} prompts, and {len(keys)} are left: of {len(self.places)} "
                f"in the data set {len(busy)} are under way; give more problems, or set a smaller "
                "`prompts.batch_size` or more `prompts.visits`"
            )
        rows = collate_fn([self.train_dataset[self.places[key]] for key in keys])
        rows["uid"] = np.array([str(uuid.uuid4()) for _ in keys], dtype=object)
        self._under_way |= dict(zip(rows["uid"], keys, strict=True))
        known = session_arguments(self.recipe, self.sampler, keys).get("priors")
        priors = [None] * len(keys) if known is None else known.tolist()
        recorded = self.settings.records.prompts_per_step
        orders = [
            Order(key, self.global_steps, prior, place < recorded)
            for place, (key, prior) in enumerate(zip(keys, priors, strict=True))
        ]
        rows[NAME] = np.fromiter(map(asdict, orders), dtype=object, count=len(keys))
        batch = tu.get_tensordict(rows)
        tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        return batch

    # Rollouts.

    def get_llm_client(self) -> Any:
        """Return a client of verl's rollout engines that can cancel responses."""
        return self.llm_server_manager.get_client(client_cls=self.client)

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        """Take a step, tell the sampler the pass rates of its prompts, and measure it."""
        self._used = {}
        batch = super().step(metrics, timing_raw)
        self._tell()
        metrics.update(numbers({NAME: self._figures}))
        return batch

    def _tell(self) -> None:
        """Tell the sampler what came of the prompts that the step has used, and record it."""
        failed, number = self.replay_buffer.failed, self.global_steps
        reports = [report for report, _ in self._used.values()]
        groups = [group for _, group in self._used.values()]
        session = self.recipe.session([report.key for report in reports], number)
        session.pools = {group.pool.key: group.pool for group in groups}
        session.surplus = sum(report.surplus for report in reports)
        session.failures = sum(report.failures for report in reports)
        session.lost = sum(report.lost for report in reports)
        cost = RolloutCost(tokens=sum(report.tokens for report in reports))
        step = conclude(self.recipe, self.sampler, Rollouts(session, cost=cost), groups)
        for uid in (*self._used, *failed):
            self._under_way.pop(uid)
        self._figures = step.metrics | {"failed_prompts": len(failed)}
        del self._figures["seconds"]  # verl measures them
        if self.mode != "sync":
            ages = [number - 1 - version for report in reports for version in report.weights]
            self._figures |= {
                "steps_off_policy": max(ages),
                "steps_off_policy_mean": sum(ages) / len(ages),
                "prompts_under_way": len(self._under_way),
            }
        failed.clear()
        for report, group in self._used.values():
            values = report.by_draw(group)
            self.recorder.folder.samples.keep(
                row | {"step": number, "advantage": values.get(row["index"])}
                for row in report.records
            )
        for row in step.visits:
            self.recorder.folder.keep_visit(number, row, self._question(row["key"]))

    def _question(self, key: Any) -> str:
        """Return the last message of a prompt, as `visits/` shows it."""
        row = self.train_dataset.dataframe[self.places[key]]
        return str(row[self.config.data.prompt_key][-1]["content"])

    # Advantages.

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Compare the responses of a batch: of a step, or of one of its mini-batches."""
        reports = self.replay_buffer.reports
        made = {r.key: r.group(self.recipe.positive_threshold) for r in reports.values()}
        pools = [group.pool for group in made.values()]
        groups = make_groups(self.recipe, pools, lambda pool: made[pool.key])
        known: dict[str, float] = {}
        for (uid, report), group in zip(reports.items(), groups, strict=True):
            self._used[uid] = report, group
            known |= {f"{uid}_{i}": value for i, value in report.by_draw(group).items()}
        self._row_advantages = [
            0.0 if tag.get("is_padding") else known[name.rsplit("_", 1)[0]]
            for name, tag in zip(batch.keys, batch.tags, strict=True)
        ]
        return super()._compute_advantage(batch, metrics)

    def _advantages(
        self, token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **others: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Give each token its row's advantage, shape (rows, T); for verl's `_compute_advantage`."""
        row_advantages = token_level_rewards.new_tensor(self._row_advantages)
        values = row_advantages[:, None] * response_mask
        return values, values

    # Updates.

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        return dp_size * self._updates

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Make the updates that are set; verl would make as many as the step's rows fill."""
        config = self.config.actor_rollout_ref
        given = config.actor.ppo_mini_batch_size, config.rollout.n
        config.actor.ppo_mini_batch_size, config.rollout.n = len(batch) // self._updates, 1
        try:
            return super()._update_actor(batch, metrics)
        finally:
            config.actor.ppo_mini_batch_size, config.rollout.n = given

    @property
    def _updates(self) -> int:
        """How many updates verl's `_update_actor` makes, each by equally many rows."""
        prompts = self.config.actor_rollout_ref.actor.ppo_mini_batch_size
        separate = self.mode == "separate_async"  # calls it once an update
        return 1 if separate else max(1, self.config.data.train_batch_size // prompts)

    # Checkpoints.

    def _save_checkpoint(self) -> None:
        """Write the sampler's state and the step's records first; verl marks completion last."""
        self.recorder.folder.flush_samples()
        self.recorder.step(self._line())
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        progress = {"step": self.global_steps, "under_way": self._under_way}
        save_state(folder / NAME, self.sampler, **progress)
        super()._save_checkpoint()

    def _load_state(self) -> None:
        settings = self.config.trainer
        folder = f"{settings.default_local_dir}/global_step_{self.global_steps}"
        if settings.resume_mode == "resume_path":
            folder = settings.resume_from_path
        (asked,) = load_state(Path(folder).absolute() / NAME, self.sampler, "under_way")
        # verl clears the rows of a step only after its checkpoint.
        rows = (tq.kv_list("train") or {}).get("train", {})
        self._under_way = {uid: key for uid, key in asked.items() if uid in rows}
        if used := [name for name in rows if name.split("_")[0] not in self._under_way]:
            tq.kv_clear(keys=used, partition_id="train")

    # Records.

    def on_train_begin(self) -> None:
        """Start the run's records, or cut them back to its checkpoint."""
        if self._heldout and self.global_steps == 1:
            self.sampler.start_at(next(iter(self._heldout.values()))["value"])
        super().on_train_begin()  # which may ask for prompts
        self.recorder.begin(self.global_steps - 1, self._heldout)

    def on_step_end(self) -> None:
        """Log the step."""
        super().on_step_end()
        self.recorder.step(self._line())
        if self.global_steps >= self.total_training_steps:
            self.recorder.folder.flush_samples()

    def on_validate_end(self) -> None:
        """Log the step again, with its evaluation; the one before training comes with its begin."""
        super().on_validate_end()
        if self._figures and self._heldout:
            self.recorder.step(self._line() | {"heldout": self._heldout})

    def _val_metrics_update(
        self, sources: Any, uids: Any, infos: Any, *others: Any, **more: Any
    ) -> Any:
        scores = infos.get("acc") or infos["reward"]
        self._heldout = heldout_figures(uids, scores, self.recipe.positive_threshold)
        metrics = super()._val_metrics_update(sources, uids, infos, *others, **more)
        return metrics | numbers({NAME: {"heldout": self._heldout or {}}})

    def _line(self) -> Row:
        return {"step": self.global_steps, **self._figures, "seconds": seconds(self.timing_raw)}


@register_trainer(TRAINERS["sync"])
class RollwiseTrainer(PoolTrainer, PPOTrainerSync):
    """verl's synchronous trainer."""

    mode = "sync"
    client = CancellingClient


@register_trainer(TRAINERS["colocate_async"])
class ColocateAsyncTrainer(PoolTrainer, PPOTrainerColocateAsync):
    """verl's asynchronous trainer whose engines share the learner's GPUs."""

    mode = "colocate_async"


@register_trainer(TRAINERS["separate_async"])
class SeparateAsyncTrainer(PoolTrainer, PPOTrainerSeparateAsync):
    """verl's asynchronous trainer with engines on GPUs of their own."""

    mode = "separate_async"

    def get_llm_client(self) -> Any:
        """Return a client of verl's separate engines."""
        return self.standalone_server_manager.get_client(client_cls=self.client)


def heldout_figures(uids: list[str], scores: list[Any], threshold: float) -> Row | None:
    """Evaluate the responses to each held-out problem; None if their numbers differ."""
    graded = zip(uids, scores, strict=True)
    correct = Counter(u for u, score in graded if score is not None and float(score) > threshold)
    drawn = Counter(uids)
    samples = set(drawn.values())
    if len(samples) != 1:
        return None  # some have failed
    return evaluation([correct[uid] for uid in drawn], samples.pop())
