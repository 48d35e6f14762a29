"""What `rollwise COMMAND` does.

A command that has a folder takes the layers of its settings, its folder, whether it resumes what is
there (see `folder.settle`), and the console; it returns whether it finished. It raises a
`RollwiseError`, which says what is wrong and what to do, or `Terminated`, where SIGTERM or SIGHUP
stopped it; then the same command goes on with what is in the folder.
"""
