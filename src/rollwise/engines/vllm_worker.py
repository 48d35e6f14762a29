"""What runs in vLLM's own processes, which import it; this process does not."""

from rollwise.engines.shared_weights import read_shared


class WeightReader:
    """A method added to vLLM's worker, which becomes a subclass of this class too."""

    def read_weights(self, path: str) -> None:
        """Reload the model's weights from `SharedWeights`."""
        self.reload_weights(weights_iterator=read_shared(path).items())  # type: ignore[attr-defined]
