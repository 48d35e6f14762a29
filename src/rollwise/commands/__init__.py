"""What `rollwise COMMAND` does.

A command that has a folder takes the layers of its settings, its folder, whether it resumes what is
there (see `folder.resolve`), and the console. It raises a `RollwiseError`, which says what is wrong
and what to do, or `KeyboardInterrupt` if a signal stopped it; the same command then resumes what is
in the folder.
"""
