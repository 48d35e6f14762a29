"""What lets released verl train on a CPU; for tests alone.

Loaded into every process by `VERL_USE_EXTERNAL_MODULES=verl_on_cpu`. It brings a platform without
an accelerator, gloo as the only process group, a rollout replica named `cpu` that serves
`TransformersEngine`, and a look at what the learner is given: `VERL_ON_CPU` names the folder for
`learnt.jsonl`.
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
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
}


class Silent(types.ModuleType):
    """A `torch.<device>` that has nothing to do: whatever is called returns 0."""

    def get_device_name(self, *device):
        return "CPU"

    def mem_get_info(self, *device):
        return 1, 1

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name, lambda *a, **k: 0)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """Calls a CPU core a GPU, so that Ray places one worker on each."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = Silent("silent")

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self):
        return "GPU"

    def ray_noset_envvars(self):
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self):
        return False

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    profiler_stop = profiler_start

    def cudart(self):
        return None


_init_process_group = torch.distributed.init_process_group


def init_process_group(backend=None, *arguments, **options):
    """Take verl's `cpu:gloo,cpu:gloo`, which names the one device twice, for `gloo`."""
    backend = "gloo" if backend and set(backend.split(",")) == {"cpu:gloo"} else backend
    return _init_process_group(backend, *arguments, **options)


torch.distributed.init_process_group = init_process_group


class Server:
    """Serves a copy of the policy; requests that come together are drawn together.

    A response depends on the weights, the prompt and the seed that came with it.
    """

    def __init__(self, model_path, response_length, temperature):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from rollwise.engines.transformers import TransformersEngine

        model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(model_path)
        self.engine = TransformersEngine(model, tokenizer, response_length, temperature)
        self.requests, self.steps, self.task, self.unseeded = {}, 0, None, 0

    async def generate(self, prompt_ids, sampling_params, request_id, **others):
        from rollwise.sampling import Draw

        self.unseeded += 1
        draw = Draw(request_id, 0, sampling_params.get("seed", self.unseeded))
        done = asyncio.get_running_loop().create_future()
        self.requests[draw] = (list(prompt_ids), done)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self.serve())
        try:
            return await done
        finally:
            self.requests.pop(draw, None)

    async def serve(self):
        from verl.workers.rollout.replica import TokenOutput

        await asyncio.sleep(0.05)
        while waiting := {d: r for d, r in self.requests.items() if not r[1].done()}:
            self.engine.submit(list(waiting), {d.key: prompt for d, (prompt, _) in waiting.items()})
            for completion in self.engine.wait():
                output = TokenOutput(
                    token_ids=completion.tokens,
                    log_probs=completion.logprobs.tolist(),
                    stop_reason="completed",
                    extra_fields={"global_steps": self.steps},
                )
                done = waiting[completion.draw][1]
                done.done() or done.set_result(output)
            self.engine.cancel(list(waiting))
            await asyncio.sleep(0)

    async def load_weights(self, weights, steps):
        self.engine.load_weights(weights)
        self.steps = steps

    async def sleep(self):
        assert not self.requests, "the engine sleeps with requests under way"

    async def wake_up(self, tags=None):
        pass


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

    def __init__(self, config, model_config, device_mesh, *arguments, **options):
        self.rank = torch.distributed.get_rank()
        self.server = None

    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, global_steps=None, **options):
        self.server = self.server or ray.get_actor(f"cpu_server_{self.rank}")
        copies = {name: tensor.detach().float().clone() for name, tensor in weights}
        await self.server.load_weights.remote(copies, global_steps)


def register():
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    base._ROLLOUT_REGISTRY["cpu", "async"] = "verl_on_cpu.Adapter"
    RolloutReplicaRegistry.register("cpu", replica)


def watch(trainers):
    """Write down each row that the learner is given."""
    update_actor = trainers.PPOTrainer._update_actor

    def watched(self, batch, metrics):
        fields = ["advantages", "response_mask", "rm_scores"]
        rows = trainers.tq.kv_batch_get(batch.keys, batch.partition_id, select_fields=fields)
        with (Path(os.environ["VERL_ON_CPU"]) / "learnt.jsonl").open("a") as file:
            for name, row in zip(batch.keys, rows, strict=True):
                file.write(json.dumps(as_learnt(self, name, row)) + "\n")
        return update_actor(self, batch, metrics)

    trainers.PPOTrainer._update_actor = watched


def as_learnt(trainer, name, row):
    own = row["advantages"][row["response_mask"].bool()].unique().tolist() or [0.0]
    assert len(own) == 1, f"row {name} has several advantages: {own}"
    report = trainer.replay_buffer.reports.get(name.split("_")[0])
    return {
        "step": trainer.global_steps,
        "name": name,
        "key": report and report.key,
        "advantage": own[0],
        "reward": float(row["rm_scores"].sum()),
    }


if os.environ.get("VERL_PLATFORM") == "cpu":
    register()
if os.environ.get("VERL_ON_CPU"):
    wrapt.register_post_import_hook(watch, "verl.trainer.ppo.v1.trainer_base")
