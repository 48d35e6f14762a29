"""What runs in vLLM's own processes, which import it; this process does not."""

from safetensors.torch import load_file


class WeightReader:
    """A method added to vLLM's worker, which becomes a subclass of this class too."""

    def read_weights(self, path: str) -> None:
        """Reload the model's weights from a safetensors file."""
        self.reload_weights(weights_iterator=load_file(path).items())  # type: ignore[attr-defined]
