"""Write docs/settings.md from the settings themselves.

python scripts/write_settings_page.py
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic.fields import FieldInfo

from rollwise.config import (
    CommandConfig,
    EvaluateConfig,
    PrepareConfig,
    Section,
    TrainConfig,
    sections_of,
)

PAGE = Path(__file__).parents[1] / "docs/settings.md"
INTRODUCTION = """\
# Settings

Every setting of `rollwise train`, [`rollwise evaluate`](#rollwise-evaluate) and
[`rollwise prepare`](#rollwise-prepare), with its default. In a TOML file `section.key` is `key`
under `[section]`; on the command line it is `--section.key VALUE`, a list as `a,b` and
a table as JSON. The command line wins over the file, the file over the defaults. `prompts`, `exit`,
`schedule` and `allocation` are strategies: `type` chooses one, and the other keys are its own.
Another `type` on the command line replaces the whole section of the file.

Some defaults depend on other settings:

- With the built-in model (`model.path = "running-sums"`), `model.cpu_threads` is 1,
  `learner.learning_rate` 2e-4, `engine.max_new_tokens` 48 and `engine.batch_size` 512.
- With `backend.type = "tinker"`, `model.lora_rank` is 32.
- On the built-in task (`data.train = "running-sums"`), `grading.type` is `exact`; with
  `grading.type = "code"`, `grading.timeout` is 10.
- With `data.environment`, `data.train` and `grading.type` are `environment`, and
  `grading.timeout` is 60.
- With `exit.type = "fixed_count"` the run is GRPO: `schedule` is one round of `exit.samples`,
  `group.size` is `exit.samples`, `group.strategy` is `all`, `group.unresolved` is `keep`,
  `advantage.objective` is `grpo`, `advantage.scale_by_std` is true.

# `rollwise train`
"""
SHARED = """\
The defaults of `model.cpu_threads`, `engine` and `grading` depend on model and task as for `train`.
With `data.environment`, `benchmarks` and `data.sources` are `["environment"]`.
`vllm.gpu_memory_utilization` is 0.9, for nothing is trained beside it.
"""
EVALUATE = f"""\
# `rollwise evaluate`

[evaluate.md](evaluate.md) says how it is used. With a model of your own, `benchmarks` is
`["math500"]`.

{SHARED}"""
PREPARE = f"""\
# `rollwise prepare`

[prepare.md](prepare.md) says how it is used.

{SHARED}"""

HEADER = "| setting | default | meaning |\n|---|---|---|\n"


def page() -> str:
    """Write all settings, one table a section, command by command."""
    commands: dict[str, type[CommandConfig]]
    commands = {INTRODUCTION: TrainConfig, EVALUATE: EvaluateConfig, PREPARE: PrepareConfig}
    written: list[str] = []
    for introduction, command in commands.items():
        written += [introduction, *_tables(command, written)]
    return "\n".join(written)


def _tables(command: type[CommandConfig], written: Sequence[str]) -> list[str]:
    """Write a command's tables; one that stands further up is only named."""
    top, sections, again = [], [], []
    for name, field in command.model_fields.items():
        kinds = sections_of(field.annotation)
        if not kinds:
            top.append(_row(name, field))
        for kind in kinds:
            table = _table(name, kind, alternatives=len(kinds) > 1)
            if table in written:
                again.append(f"`{name}`")
            else:
                sections.append(table)
    known = [f"{', '.join(again)}: as further up.\n"] if again else []
    return [HEADER + "".join(top), *known, *sections]


def _table(name: str, kind: type[Section], alternatives: bool) -> str:
    title = f"## {name}"
    if alternatives:
        title += f": `{kind.model_fields['type'].default}`"
    rows = [_row(f"{name}.{key}", field) for key, field in kind.model_fields.items()]
    return f"{title}\n\n{(kind.__doc__ or '').splitlines()[0]}\n\n{HEADER}{''.join(rows)}"


def _row(name: str, field: FieldInfo) -> str:
    default = json.dumps(field.get_default(call_default_factory=True))
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{name}` | `{default}` | {meaning} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
