"""Problems: read from files and the hub, or made by the built-in task.

Importing this package loads no tokenizer, no model library and no library of a file format.
"""

from rollwise.tasks.benchmarks import Benchmark, find_benchmarks, read_benchmark
from rollwise.tasks.problem import Problem, remove_near_duplicates
from rollwise.tasks.procedural import make_from_source
from rollwise.tasks.readers import ProblemSet, check_references, read_problems, read_source
from rollwise.tasks.running_sums import make_problems as make_running_sums
from rollwise.tasks.writers import write_problems

__all__ = [
    "Benchmark",
    "Problem",
    "ProblemSet",
    "check_references",
    "find_benchmarks",
    "make_from_source",
    "make_running_sums",
    "read_benchmark",
    "read_problems",
    "read_source",
    "remove_near_duplicates",
    "write_problems",
]
