"""What lets released verl train on a CPU; for tests alone.

Loaded into every process by `VERL_USE_EXTERNAL_MODULES=verl_on_cpu`. It brings a platform without
an accelerator, gloo as the only process group, a rollout replica named `cpu` that serves
`TransformersEngine`, and a look at what the learner is given and how often it updates the weights:
`VERL_ON_CPU` names the folder for `learnt.jsonl` and `updates.txt`.
"""

import asyncio
import contextlib
import json
import os
import types
from pathlib import Path

import ray
import torch
import torch.distributed
import wrapt
from torch.optim.optimizer import register_optimizer_step_post_hook
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def always(answer):
    return lambda *arguments, **options: answer


class Silent(types.ModuleType):
    """A `torch.<device>` that has nothing to do: whatever is called returns 0."""

    get_device_name, mem_get_info = always("CPU"), always((1, 1))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name, always(0))


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """Calls a CPU core a GPU, so that Ray places one worker on each."""

    device_name = vendor_name = "cpu"
    device_module = Silent("silent")
    is_available, device_count, is_ipc_supported = always(True), always(1), always(False)
    current_device, get_device_capability = always("cpu"), always((None, None))
    communication_backend_name, ray_resource_name = always("gloo"), always("GPU")
    visible_devices_envvar = always("CUDA_VISIBLE_DEVICES")
    ray_noset_envvars = always(["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"])
    set_device = synchronize = set_allocator_settings = empty_cache = always(None)
    profiler_start = profiler_stop = cudart = always(None)
    nvtx_range = always(contextlib.nullcontext())

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed


_init_process_group = torch.distributed.init_process_group


def init_process_group(backend=None, *arguments, **options):
    """Take verl's `cpu:gloo,cpu:gloo`, which names the one device twice, for `gloo`."""
    backend = "gloo" if backend and set(backend.split(",")) == {"cpu:gloo"} else backend
    return _init_process_group(backend, *arguments, **options)


torch.distributed.init_process_group = init_process_group


CUT_AT = 3
"""Tokens of a response that an abort leaves; what had ended by then is complete."""


class Server:
    """Serves a copy of the policy; a response depends on the weights, the prompt and its seed.

    An abort hands back the first tokens of what is under way. It parks what comes, or with
    `reject_request` hands it back, as vLLM does.
    """

    def __init__(self, model_path, response_length, temperature):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from rollwise.engines.transformers import TransformersEngine

        model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(model_path)
        self.engine = TransformersEngine(model, tokenizer, response_length, temperature)
        self.under_way, self.requests, self.steps = set(), 0, 0
        self.paused, self.rejecting, self.resumed = False, False, asyncio.Event()

    async def generate(self, prompt_ids, sampling_params, request_id, **others):
        from rollwise.sampling import Draw

        if self.rejecting:
            return self.output([], None, "aborted")
        while self.paused:
            await self.resumed.wait()
        self.requests += 1
        draw = Draw(request_id, self.requests, sampling_params.get("seed", self.requests))
        task = asyncio.ensure_future(self.engine.complete(draw, list(prompt_ids)))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        response = await task
        tokens = response.tokens[: sampling_params.get("max_tokens")]
        cut = self.paused and len(tokens) > CUT_AT
        tokens = tokens[:CUT_AT] if cut else tokens
        logprobs = response.logprobs.tolist()[: len(tokens)]
        return self.output(tokens, logprobs, "aborted" if cut else "completed")

    def output(self, tokens, logprobs, reason):
        from verl.workers.rollout.replica import TokenOutput

        return TokenOutput(
            token_ids=tokens,
            log_probs=logprobs,
            stop_reason=reason,
            extra_fields={"global_steps": self.steps},
        )

    async def abort_all_requests(self, reject_request=False):
        self.paused, self.rejecting = True, reject_request
        self.resumed.clear()
        await asyncio.gather(*self.under_way, return_exceptions=True)

    async def resume_generation(self):
        self.paused = self.rejecting = False
        self.resumed.set()

    async def release_kv_cache(self):
        assert self.paused, "the weights would change under the requests under way"

    async def nothing(self, tags=None):
        pass

    resume_kv_cache = wake_up = nothing

    async def load_weights(self, weights, steps):
        self.engine.load_weights(weights)
        self.steps = steps

    async def sleep(self):
        assert not self.under_way, "the engine sleeps with requests under way"


def replica():
    """verl's handle on a server; made late, for its base needs a platform."""
    from verl.workers.rollout.replica import RolloutReplica

    class Replica(RolloutReplica):
        async def launch_servers(self):
            path = self.model_config.path
            server = ray.remote(Server).options(name=f"cpu_server_{self.replica_rank}")
            handle = server.remote(path, self.config.response_length, self.config.temperature)
            self.servers = [handle]
            self._server_handle, self._server_address = handle, f"cpu-{self.replica_rank}"

    return Replica


class Adapter:
    """The trainer's side: hands its weights to the server of its replica."""

    def __init__(self, config, model_config, device_mesh, *arguments, replica_rank=None, **options):
        self.rank = torch.distributed.get_rank() if replica_rank is None else replica_rank
        self.server = None

    async def resume(self, tags=None):
        pass

    release = resume

    async def update_weights(self, weights, global_steps=None, **options):
        self.server = self.server or ray.get_actor(f"cpu_server_{self.rank}")
        copies = {name: tensor.detach().float().clone() async for name, tensor in each(weights)}
        await self.server.load_weights.remote(copies, global_steps)


async def each(weights):
    """Iterate over weights, whether they come from a generator or from an asynchronous one."""
    if hasattr(weights, "__aiter__"):
        async for pair in weights:
            yield pair
    else:
        for pair in weights:
            yield pair


class Mailbox:
    """Where the trainer leaves new weights for separate servers."""

    def __init__(self):
        self.weights, self.steps = None, None

    def put(self, weights, steps):
        self.weights, self.steps = weights, steps

    def get(self, steps):
        return self.weights if self.steps == steps else None


class MailboxEngine:
    """A checkpoint engine of verl's, by the mailbox."""

    wire_format = "named_tensors"

    def __init__(self, bucket_size, **options):
        self.rank, self.mailbox = -1, None

    def prepare(self):
        named = ray.remote(Mailbox).options(name="cpu_mailbox", get_if_exists=True)
        self.mailbox = self.mailbox or named.remote()

    @classmethod
    def build_topology(cls, actors, rollouts, metadata):
        return {"rank": list(range(actors))}, {"rank": [-1] * rollouts}

    def init_process_group(self, rank):
        self.rank = rank

    def finalize(self):
        pass

    async def send_weights(self, weights, global_steps=None):
        copies = {name: tensor.detach().float().clone() async for name, tensor in each(weights)}
        if self.rank == 0:
            await self.mailbox.put.remote(copies, global_steps)

    async def receive_weights(self, global_steps=None):
        while (weights := await self.mailbox.get.remote(global_steps)) is None:
            await asyncio.sleep(0.05)
        for pair in weights.items():
            yield pair


def register():
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    base._ROLLOUT_REGISTRY["cpu", "async"] = "verl_on_cpu.Adapter"
    RolloutReplicaRegistry.register("cpu", replica)


def register_engine(checkpoint_engines):
    checkpoint_engines.CheckpointEngineRegistry.register("cpu")(MailboxEngine)


def start_again(ray):
    """Start Ray again if its node failed to start.

    Its raylet gives the agent beside it 20 seconds, then aborts, and nothing starts another.
    """
    init = ray.init

    def patient(*arguments, **options):
        for _ in range(4):
            try:
                return init(*arguments, **options)
            except Exception as error:
                if "timed out during startup" not in str(error):
                    raise
                ray.shutdown()
        return init(*arguments, **options)

    ray.init = patient


def hurry(buffers):
    """Look for finished prompts ten times a second instead of every two seconds."""
    init = buffers.ReplayBuffer.__init__

    def hurried(self, *arguments, **options):
        init(self, *arguments, **options | {"poll_interval": 0.1})

    buffers.ReplayBuffer.__init__ = hurried


def watch(trainers):
    """Write down each row that the learner is given."""
    update_actor = trainers.PPOTrainer._update_actor

    def watched(self, batch, metrics):
        fields = ["advantages", "response_mask", "rm_scores", "responses", "rollout_log_probs"]
        rows = trainers.tq.kv_batch_get(batch.keys, batch.partition_id, select_fields=fields)
        with (Path(os.environ["VERL_ON_CPU"]) / "learnt.jsonl").open("a") as file:
            for name, row in zip(batch.keys, rows, strict=True):
                file.write(json.dumps(as_learnt(self, name, row)) + "\n")
        return update_actor(self, batch, metrics)

    trainers.PPOTrainer._update_actor = watched


def note_update(*arguments):
    """Write down which rank has updated its weights."""
    with (Path(os.environ["VERL_ON_CPU"]) / "updates.txt").open("a") as file:
        file.write(f"{torch.distributed.get_rank()}\n")


def as_learnt(trainer, name, row):
    own = row["advantages"][row["response_mask"].bool()].unique().tolist() or [0.0]
    assert len(own) == 1, f"row {name} has several advantages: {own}"
    report = trainer.replay_buffer.reports.get(name.split("_")[0])
    return {
        "pid": os.getpid(),
        "step": trainer.global_steps,
        "name": name,
        "key": report and report.key,
        "advantage": own[0],
        "reward": float(row["rm_scores"].sum()),
        "mask": row["response_mask"].tolist(),
        "tokens": row["responses"].tolist(),
        "logprobs": row["rollout_log_probs"].tolist(),
    }


if os.environ.get("VERL_PLATFORM") == "cpu":
    register()
    start_again(ray)
    wrapt.register_post_import_hook(register_engine, "verl.checkpoint_engine.base")
    wrapt.register_post_import_hook(hurry, "verl.trainer.ppo.v1.replay_buffer")
if os.environ.get("VERL_ON_CPU"):
    wrapt.register_post_import_hook(watch, "verl.trainer.ppo.v1.trainer_base")
    register_optimizer_step_post_hook(note_update)
