"""Training at Tinker: the same loop, with the model drawn from and updated over there."""

from rollwise.integrations.tinker.backend import TinkerBackend

__all__ = ["TinkerBackend"]
