"""What runs in vLLM's own processes: how they take over weights. vLLM imports it there."""

from dataclasses import dataclass

from safetensors.torch import load_file
from vllm.distributed.weight_transfer.base import WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine

from rollwise.engines.shared_tensors import Handle, tensor_of

ON_DEVICE = "rollwise"
"""The name of this way to hand over weights in vLLM."""


@dataclass
class SharedTensors(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Some of the weights.

    Attributes:
        tensors: By name, where each is.
    """

    tensors: dict[str, Handle]


class OnDevice(IPCWeightTransferEngine):  # type: ignore[misc]
    """Reads weights where the learner has them.

    vLLM's own way by CUDA's handles, which starts and ends an update; but handles come as plain
    data, not pickled, so that vLLM's refusal to unpickle (`VLLM_ALLOW_INSECURE_SERIALIZATION`)
    stays in force.
    """

    update_info_cls = SharedTensors

    def receive_weights(self, update_info: SharedTensors) -> None:
        """Load some of the weights; vLLM casts them to its own precision."""
        index = self.device.index or 0
        tensors = update_info.tensors.items()
        self.model.load_weights([(name, tensor_of(handle, index)) for name, handle in tensors])


WeightTransferEngineFactory.register_engine(ON_DEVICE, OnDevice)


class WeightReader:
    """A method added to vLLM's worker, which becomes a subclass of this class too."""

    def read_weights(self, path: str) -> None:
        """Reload the model's weights from a safetensors file."""
        self.reload_weights(weights_iterator=load_file(path).items())  # type: ignore[attr-defined]
