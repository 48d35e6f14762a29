"""What workers load in the tests."""

import os


def load():
    """Make a function that knows which process made it."""
    loader = os.getpid()
    return lambda response, answer: eval(response, {"os": os, "loader": loader})


def lacking():
    raise ImportError("no such library")


def leaving():
    os._exit(7)
