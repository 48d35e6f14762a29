"""Problems: read from files and the hub, made by the built-in task, and encoded for a model.

Importing this room loads no tokenizer, no model library and no file format's library.
"""

from rollwise.tasks.problem import Problem
from rollwise.tasks.prompts import EncodedPrompts, encode_prompts
from rollwise.tasks.readers import ProblemSet, read_problems
from rollwise.tasks.running_sums import make_problems as make_running_sums

__all__ = [
    "EncodedPrompts",
    "Problem",
    "ProblemSet",
    "encode_prompts",
    "make_running_sums",
    "read_problems",
]
