"""Write docs/settings.md from the settings themselves.

python scripts/write_settings_page.py
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from rollwise.config import (
    Chosen,
    CommandConfig,
    CompareConfig,
    EvaluateConfig,
    PlanConfig,
    PrepareConfig,
    Section,
    TrainConfig,
    sections_of,
)

PAGE = Path(__file__).parents[1] / "docs/settings.md"
INTRODUCTION = """\
# Settings

Every setting of `rollwise train`, [`rollwise evaluate`](#rollwise-evaluate),
[`rollwise prepare`](#rollwise-prepare), [`rollwise compare`](#rollwise-compare) and
[`rollwise plan`](#rollwise-plan), with its default. In a TOML file `section.key` is `key` under
`[section]`; on the command line it is `--section.key VALUE`, a list as `a,b` and a table as JSON.
The command line wins over the file, the file over the defaults.

`backend`, `prompts`, `belief`, `exit`, `schedule`, `allocation`, `engine`, `episode` and `grading`
choose one of several kinds by `type`, `advantage` by `objective`; each may be one of your own,
`module:Class` ([plugins.md](plugins.md)). A kind's own keys are valid for that kind alone: another
kind on the command line drops those of the file, except those of `advantage` that the other
objective has too.

Some defaults depend on other settings:

- With none of `exit`, `schedule`, `allocation`, `group`, `advantage`, `belief`, `prompts.type` and
  `episode.type` given, and with a grader whose rewards are 0 and 1 (`exact`, `math`, `code`), the
  run learns from [single responses](belief.md): `prompts.type` is `worth`, `prompts.batch_size`
  256, `exit.type` `fixed_count`, `exit.samples` 1, `advantage.baseline` `belief`,
  `step.response_cap` 1, `learner.average` `responses`, `learner.mini_batches` 8,
  `learner.warmup_updates` 40, and `learner.old_logprobs` `engine` with the built-in engine.
  Otherwise the defaults are those of the tables, which are Reinforce-Ada's: `--exit.type balanced`
  gives them, `--exit.type fixed_count` GRPO.
- With the built-in model (`model.path = "running-sums"`), `model.cpu_threads` is 1,
  `learner.learning_rate` 2e-4 (1.4e-4 with `advantage.baseline` `belief`), `engine.max_new_tokens`
  48 and `engine.batch_size` 512.
- With `tokens` or `seconds`, `steps` is 1,000,000: it limits nothing. With
  `evaluation.every_tokens`, `evaluation.every` is 0.
- With `data.train = "tool-sums"`, `model.path` is `tool-sums` and `episode.type` is `calculator`.
  Such a model has the defaults of the built-in one.
- With `backend.type = "tinker"`, `model.lora_rank` is 32.
- On a built-in task (`running-sums`, `tool-sums`), `grading.type` is `exact`; with
  `grading.type = "code"`, `grading.timeout` is 10.
- With `data.environment`, `data.train` and `grading.type` are `environment`, and
  `grading.timeout` is 60.
- With `exit.type = "fixed_count"`, `schedule` is one round of `exit.samples`, `group.size` is
  `exit.samples`, `group.strategy` is `all` and `group.zero_variance` is `keep`. The run is GRPO:
  `advantage.objective` is `grpo` and `advantage.scale_by_std` is true; or, with
  `advantage.baseline = "belief"`, each response is compared with what was expected of its prompt:
  `advantage.objective` is `linear` ([belief.md](belief.md)).
- With `model.path` a run of `rollwise train`, `rollwise evaluate` and `rollwise prepare` cut
  responses at the run's `engine.max_new_tokens`.
- With `advantage.baseline = "belief"`, `advantage.objective` is `linear` and `group.strategy` is
  `all`.

# `rollwise train`
"""
SHARED = """\
The defaults of `model`, `engine`, `episode` and `grading` depend on model and task as for `train`.
With `data.environment`, `benchmarks` and `data.sources` are `["environment"]`.
With `engine.type = "vllm"`, `engine.gpu_memory_utilization` is 0.9: nothing is trained
beside it.
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

COMPARE = """\
# `rollwise compare`

[compare.md](compare.md) says how it is used.
"""

PLAN = """\
# `rollwise plan`

[plan.md](plan.md) says how it is used.
"""

HEADER = "| setting | default | meaning |\n|---|---|---|\n"


def page() -> str:
    """Write all settings, one table a section, command by command."""
    commands: dict[str, type[CommandConfig]]
    commands = {
        INTRODUCTION: TrainConfig,
        EVALUATE: EvaluateConfig,
        PREPARE: PrepareConfig,
        COMPARE: CompareConfig,
        PLAN: PlanConfig,
    }
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
            top.append(_row(name, field, _default(field)))
        for kind in kinds:
            table = _table(name, kind, alternatives=len(kinds) > 1)
            if table in written:
                again.append(f"`{name}`")
            else:
                sections.append(table)
    known = [f"{', '.join(dict.fromkeys(again))}: as further up.\n"] if again else []
    return [HEADER + "".join(top), *known, *sections]


def _table(name: str, kind: type[Section], alternatives: bool) -> str:
    title = f"## {name}"
    if alternatives and issubclass(kind, Chosen):
        title += f": `{kind.model_fields[kind.tag].default}`"
    of_kind = getattr(kind, "kind", None)
    rows = [
        _row(f"{name}.{key}", field, getattr(of_kind, key, None) or _default(field))
        for key, field in kind.model_fields.items()
    ]
    return f"{title}\n\n{(kind.__doc__ or '').splitlines()[0]}\n\n{HEADER}{''.join(rows)}"


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


def _row(name: str, field: FieldInfo, default: Any) -> str:
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{name}` | `{json.dumps(default)}` | {meaning} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
