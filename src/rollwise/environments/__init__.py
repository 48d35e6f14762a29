"""Environments of the library `verifiers`: what they ask, and what they make of a response.

Importing this room does not load the library.
"""

from rollwise.environments.environment import Environment, Question
from rollwise.environments.source import EnvironmentSource

__all__ = ["Environment", "EnvironmentSource", "Question"]
