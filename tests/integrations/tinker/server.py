"""A server that speaks Tinker's protocol, over the built-in engine and learner.

It trains the built-in model, and prints its port.
"""

import asyncio
import copy
import json
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import uvicorn
from fastapi import FastAPI, Request, Response
from tinker.proto import tinker_public_pb2 as wire

from rollwise.config import LearnerSettings, ModelSettings
from rollwise.engines.transformers import TransformersEngine
from rollwise.models.loading import load_model
from rollwise.sampling import Draw
from rollwise.step import Example
from rollwise.step import Response as Drawn
from rollwise.training.learner import Learner
from rollwise.training.loss import policy_loss

PROTO = "application/x-protobuf"
KEY = "tml-of-the-tests"
MODEL = "{session_id}:train:{model_seq_id}"


class Trained:
    """A model with adapters, its optimizer, and what was kept of it."""

    def __init__(self, rank, seed):
        torch.manual_seed(seed)
        settings = ModelSettings(device="cpu", cpu_threads=1, lora_rank=rank)
        model, self.tokenizer = load_model(settings)
        self.rank, self.learner = rank, Learner(model, LearnerSettings())
        self.sampled_from, self.snapshots, self.engines = copy.deepcopy(model), {}, {}

    def adapters(self):
        named = self.learner.model.named_parameters()
        return {name: p.detach().clone() for name, p in named if p.requires_grad}

    def state(self):
        return copy.deepcopy((self.adapters(), self.learner.optimizer.state_dict()))

    def restore(self, state):
        adapters, optimizer = copy.deepcopy(state)
        self.learner.model.load_state_dict(adapters, strict=False)
        self.learner.optimizer.load_state_dict(optimizer)

    def forward_backward(self, message):
        examples = [as_example(datum) for datum in message.data]
        lengths = [len(example.response.tokens) for example in examples]
        logprobs = self.learner._forward(examples)[0]
        old, advantages = (
            torch.cat([torch.tensor(floats(d.loss_fn_inputs[name])) for d in message.data])
            for name in ("logprobs", "advantages")
        )
        losses = loss(message, logprobs, old, advantages)
        if not message.forward_only:
            losses.sum().backward()
        output = wire.ForwardBackwardOutput(loss_fn_output_type="TorchLossReturn")
        output.metrics["loss:sum"] = losses.sum().item()
        record = output.loss_fn_outputs.add(num_datums=len(examples))
        field = record.fields["logprobs"]
        field.data, field.dtype = logprobs.detach().numpy().tobytes(), wire.DTYPE_FLOAT32
        field.offsets = (4 * np.cumsum([0, *lengths])).astype(np.int64).tobytes()
        return output.SerializeToString()

    def optim_step(self, given):
        learner = self.learner
        if clip := given["grad_clip_norm"]:
            torch.nn.utils.clip_grad_norm_(learner.parameters, clip)
        for group in learner.optimizer.param_groups:
            group |= {"lr": given["learning_rate"], "betas": (given["beta1"], given["beta2"])}
            group |= {"eps": given["eps"], "weight_decay": given["weight_decay"]}
        learner.optimizer.step()
        learner.optimizer.zero_grad()
        return {"metrics": {}}

    def sample(self, body):
        """Draw for an `asample` request of one snapshot."""
        params, prompt = body["sampling_params"], body["prompt"]["chunks"][0]["tokens"]
        limit = params["max_tokens"]
        if limit not in self.engines:
            self.engines[limit] = TransformersEngine(self.sampled_from, self.tokenizer, limit)
        engine = self.engines[limit]
        engine.load_weights(self.snapshots[body["sampling_session_id"]])
        return as_answer(asyncio.run(engine.complete(Draw(0, 0, params["seed"]), prompt)))


def as_example(datum):
    first = np.frombuffer(datum.model_input[0].encoded_text.tokens, np.int32)[:1].tolist()
    targets = np.frombuffer(datum.loss_fn_inputs["target_tokens"].dense, np.int64).tolist()
    return Example(first, Drawn(targets, np.zeros(len(targets), np.float32)), 0.0)


def floats(tensor):
    return np.frombuffer(tensor.dense, np.float32)


def loss(message, logprobs, old, advantages):
    """Compute each token's loss as Tinker's documentation has it."""
    if message.loss_fn == "importance_sampling":
        return -(logprobs - old).exp() * advantages
    assert message.loss_fn == "ppo"
    low, high = (message.loss_fn_config[f"clip_{side}_threshold"] for side in ("low", "high"))
    clips = {"clip_low": 1 - low, "clip_high": high - 1, "dual_clip": float("inf")}
    return policy_loss(logprobs, old, advantages, **clips)[0].nan_to_num(0.0)


def as_answer(response):
    reason = wire.STOP_REASON_LENGTH if response.truncated else wire.STOP_REASON_STOP
    sequence = wire.SampledSequence(
        stop_reason=reason,
        tokens=np.array(response.tokens, np.int32).tobytes(),
        logprobs=np.array(response.logprobs, np.float32).tobytes(),
    )
    return wire.SampleResponse(sequences=[sequence]).SerializeToString()


class Service:
    """Does what it is asked, one thing after another, in a thread of its own."""

    def __init__(self):
        self.promises, self.models, self.kept, self.of_sampler = {}, {}, {}, {}
        self.worker = ThreadPoolExecutor(1)

    def ask(self, name, kind, body):
        """Take a request, once: one that is sent again gets the promise of the first."""
        if name not in self.promises:
            self.promises[name] = self.worker.submit(self.answer, kind, body)
        return {"request_id": name, "model_id": None, "sample_sequence_ids": [name]}

    def answer(self, kind, body):
        try:
            return getattr(self, kind)(body)
        except Exception as error:
            return {"error": repr(error), "category": "server"}

    def asample(self, body):
        return self.of_sampler[body["sampling_session_id"]].sample(body)

    def create_model(self, body):
        name = MODEL.format(**body)
        if body["base_model"] != "running-sums":
            raise ValueError(f"there is no model {body['base_model']}")
        self.models[name] = Trained(body["lora_config"]["rank"], body["lora_config"]["seed"])
        return {"model_id": name}

    def load_weights(self, body):
        name = MODEL.format(**body)
        rank, state = self.kept[body["path"]]
        self.models[name] = Trained(rank, 0)
        self.models[name].restore(state)
        return {"path": body["path"], "model_id": name}

    def save_weights(self, body):
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        model = self.models[body["model_id"]]
        self.kept[path] = model.rank, model.state()
        return {"path": path}

    def save_weights_for_sampler(self, body):
        name = f"{body['model_id']}:sampler:{body['sampling_session_seq_id']}"
        model = self.of_sampler[name] = self.models[body["model_id"]]
        model.snapshots[name] = model.adapters()
        return {"path": None, "sampling_session_id": name}

    def forward_backward(self, message):
        return self.models[message.model_id].forward_backward(message)

    def optim_step(self, body):
        return self.models[body["model_id"]].optim_step(body["adam_params"])


ANSWERS = {
    "client/config": {"create_model_via_load_weights": True, "proto_compress_fwdbwd": False},
    "client/dynamic_config": {"sample_cancel_enabled": True},
    "telemetry": {"status": "accepted"},
    "session_heartbeat": {"type": "session_heartbeat"},
    "cancel_future": {},
}
"""Path -> what is always answered."""


def make_app(service):
    app = FastAPI()

    def post(path):
        return app.post(f"/api/v1/{path}")

    @app.middleware("http")
    async def check_key(request, call_next):
        given = request.headers.get("x-api-key", request.headers.get("authorization", ""))
        if given.removeprefix("Bearer ") != KEY:
            return Response(json.dumps({"detail": "no such key"}), 401)
        return await call_next(request)

    for path, answer in ANSWERS.items():
        post(path)(lambda answer=answer: answer)

    @post("create_session")
    async def create_session():
        return {"session_id": uuid.uuid4().hex}

    @post("get_info")
    async def get_info(request: Request):
        name = (await request.json())["model_id"]
        own = {"is_lora": True, "lora_rank": service.models[name].rank}
        return {"model_id": name, "model_data": {"model_name": "running-sums"}} | own

    @post("forward_backward")
    async def forward_backward(request: Request):
        message = wire.ForwardBackwardRequest.FromString(await request.body())
        name = f"{message.model_id}:{message.seq_id}"
        return service.ask(name, "forward_backward", message)

    def asking(kind, name):
        async def endpoint(request: Request):
            body = await request.json()
            return service.ask(name.format(**body), kind, body)

        return endpoint

    for kind in ("create_model", "load_weights"):
        post(kind)(asking(kind, f"{MODEL}:0"))
    for kind in ("optim_step", "save_weights", "save_weights_for_sampler"):
        post(kind)(asking(kind, "{model_id}:{seq_id}"))
    post("asample")(asking("asample", "{sampling_session_id}:{seq_id}"))

    @post("retrieve_future")
    async def retrieve_future(request: Request):
        promise = service.promises[(await request.json())["request_id"]]
        result = await asyncio.shield(asyncio.wrap_future(promise))
        return Response(result, media_type=PROTO) if isinstance(result, bytes) else result

    return app


async def serve():
    settings = uvicorn.Config(make_app(Service()), log_level="warning", access_log=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        await uvicorn.Server(settings).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(serve())
