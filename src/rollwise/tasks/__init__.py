"""Problems: read from files and the hub, made by the built-in task, and encoded for a model.

Importing this room loads no tokenizer, no model library and no file format's library.
"""

from rollwise.tasks.benchmarks import Benchmark, find_benchmarks, read_benchmark
from rollwise.tasks.duplicates import remove_near_duplicates
from rollwise.tasks.problem import Problem
from rollwise.tasks.prompts import EncodedPrompts, encode_prompts
from rollwise.tasks.readers import ProblemSet, read_problems
from rollwise.tasks.running_sums import make_problems as make_running_sums
from rollwise.tasks.writers import write_problems

__all__ = [
    "Benchmark",
    "EncodedPrompts",
    "Problem",
    "ProblemSet",
    "encode_prompts",
    "find_benchmarks",
    "make_running_sums",
    "read_benchmark",
    "read_problems",
    "remove_near_duplicates",
    "write_problems",
]
