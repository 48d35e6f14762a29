"""Loaded by verl in every process, at `import verl`, through the entry point `verl.plugins`.

It imports the trainers, which register themselves, only once verl's are imported, in the one
process that trains. verl swallows an error raised here, so there is little that can fail.
"""

from importlib import import_module

import wrapt

wrapt.register_post_import_hook(
    lambda trainers: import_module("rollwise.integrations.verl.trainer"), "verl.trainer.ppo.v1"
)
