"""What verl's entry point `verl.plugins` loads in every process, at `import verl`.

It only leaves word: the trainer registers itself once verl's trainers are imported, in the one
process that trains. An error here would be swallowed by verl, so there is little that can fail.
"""

from types import ModuleType

import wrapt


def register(trainers: ModuleType) -> None:
    """Import our trainer, which registers itself under the name `rollwise`."""
    import rollwise.integrations.verl.trainer  # noqa: F401


wrapt.register_post_import_hook(register, "verl.trainer.ppo.v1")
