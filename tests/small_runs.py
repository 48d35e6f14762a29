"""Options of runs that take seconds."""

SMALL = [
    *("--prompts.batch_size=4", "--data.problems=32", "--data.max_terms=4"),
    *("--engine.max_new_tokens=16", "--evaluation.problems=4", "--evaluation.samples=2"),
]
"""All but the steps."""
