"""Environments of the library `verifiers`: what they ask, and how they score a response.

Importing this package does not load the library.
"""

from rollwise.environments.environment import Environment, Question
from rollwise.environments.source import EnvironmentSource

__all__ = ["Environment", "EnvironmentSource", "Question"]
