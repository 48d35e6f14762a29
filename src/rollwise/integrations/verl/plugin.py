"""Loaded by verl in every process, at `import verl`, through the entry point `verl.plugins`.

It imports the trainer only once verl's trainers are imported, in the one process that trains. verl
swallows an error raised here, so there is little that can fail.
"""

from types import ModuleType

import wrapt


def register(trainers: ModuleType) -> None:
    """Import the trainers, which register themselves."""
    import rollwise.integrations.verl.trainer  # noqa: F401


wrapt.register_post_import_hook(register, "verl.trainer.ppo.v1")
