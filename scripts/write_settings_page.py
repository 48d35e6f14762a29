"""Write docs/settings.md from the settings themselves.

python scripts/write_settings_page.py
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from rollwise.config import KINDS, CommandConfig, TrainConfig
from rollwise.config.reading import sections_of
from rollwise.config.sections import Section, Variant

PAGE = Path(__file__).parents[1] / "docs/settings.md"
INTRODUCTION = """\
# Settings

In TOML, `section.key` is `key` under `[section]`. On the command line it is `--section.key VALUE`:
a list as `a,b`, a table as JSON. The command line wins over the file, the file over the defaults.

{contents}

## Sections with a type

Some sections choose a kind by `type` (`advantage` by `objective`), or name a [class of your
own](plugins.md) as `module:Class`. A link leads to the page that explains the kinds. The table
begins with the keys that all kinds share. Each kind, in bold, is followed by its own keys, and
accepts no others. If the command line names another kind than the file, the file's keys of its
kind are dropped, except those of `advantage` that the other objective has as well.

## Defaults that depend on other settings

- **The default method** is single responses, with [these settings](belief.md#when-to-use-them). It
  holds if the grader gives 0 and 1 (`exact`, `math`, `code`) and nothing of `exit`, `schedule`,
  `allocation`, `group`, `advantage`, `belief` (but for `features`), `prompts.type`
  and `episode.type` is set.
  `learner.old_logprobs` is `engine` with the built-in engine only. Otherwise the tables hold, which
  describe Reinforce-Ada.
- **GRPO**: with `exit.type = "fixed_count"`, `schedule` is one round of `exit.samples`,
  `group.size` is `exit.samples`, `group.strategy` `all`, `group.zero_variance` `keep`,
  `advantage.objective` `grpo`, `advantage.scale_by_std` true.
- `allocation.type`: `schedule` is one round, `group.strategy` `all`; with `estimated`,
  `advantage.objective` is `sqrt`.
- `advantage.baseline = "belief"`: `advantage.objective` is `linear`, `group.strategy` `all`.
- A built-in model: `model.cpu_threads` is 1, `learner.learning_rate` 2e-4 (1.4e-4 with a belief as
  baseline), `engine.max_new_tokens` 48, `engine.batch_size` 512.
- `data.train = "tool-sums"`: `model.path` is `tool-sums`, `episode.type` `calculator`.
- `tokens` or `seconds`: `steps` has no limit.
- `evaluation.every_tokens`: `evaluation.every` is 0.
- `backend.type = "tinker"`: `model.lora_rank` is 32.
- A built-in task: `grading.type` is `exact`.
- `data.environment`: `data.train` and `grading.type` are `environment`, `benchmarks` and
  `data.sources` `["environment"]`.
- `evaluate` and `prepare`: with vLLM, `engine.gpu_memory_utilization` is 0.9; a run of `train` as
  model has the run's `engine.max_new_tokens`. With your own model, `benchmarks` is `["math500"]`.
"""
GUIDES = {
    "train": "[Train on one machine](training.md)",
    "evaluate": "[Evaluate models](evaluate.md)",
    "prepare": "[Prepare problems](prepare.md)",
    "compare": "[Compare methods](compare.md)",
    "plan": "[Plan the cost](plan.md)",
}
GUIDES_TO_KINDS = {
    "episode": "[Episodes of several turns](episodes.md)",
    "backend": "[Train on Tinker](tinker.md)",
    "grading": "[Grade responses](grading.md)",
    "prompts": "[Choosing prompts](prompts.md)",
    "belief": "[Beliefs](belief.md#beliefs)",
    "exit": "[Drawing responses](sampling.md)",
    "schedule": "[Rounds and streaming](schedules.md)",
    "allocation": "[Counts fixed in advance](sampling.md#counts-fixed-in-advance)",
    "advantage": "[Objectives](objectives.md)",
    "engine": "[Engines](engines.md)",
}
"""Where the kinds of a section are explained."""
HEADER = "|setting|default|meaning|\n|---|---|---|"

Rows = dict[str, str]
"""The row of each setting, by its name."""


def page() -> str:
    """Write all settings: `train` section by section, and of other commands what differs."""
    train = list(_train_sections())
    known: dict[str, str] = {}
    parts = [INTRODUCTION.format(contents=_contents())]
    for command, config in KINDS.items():
        parts.append(f"## `rollwise {command}`\n\n{GUIDES[command]}\n")
        parts += train if command == "train" else _others(config, known)
        for _, rows in _sections(config):
            known = dict.fromkeys(rows.values(), command) | known
    return "\n".join(parts)


def _contents() -> str:
    fields = TrainConfig.model_fields.items()
    names = [name for name, field in fields if sections_of(field.annotation)]
    links = [f"- [`rollwise {command}`](#rollwise-{command})" for command in KINDS]
    links[0] += ": " + ", ".join(f"[{name}](#{name})" for name in names)
    return "\n".join(links)


def _train_sections() -> Iterator[str]:
    """Yield a table of the settings without a section, then one for each section."""
    fields = TrainConfig.model_fields.items()
    alone = {name: field for name, field in fields if not sections_of(field.annotation)}
    yield _table(_row(name, field, _default(field)) for name, field in alone.items())
    for name, field in fields:
        kinds = sections_of(field.annotation)
        if kinds:
            guide = f"{GUIDES_TO_KINDS[name]}\n\n" if len(kinds) > 1 else ""
            yield f"### {name}\n\n{guide}{_section_table(name, kinds)}"


def _section_table(name: str, kinds: Sequence[type[Section]]) -> str:
    """Write what all kinds share, then a row for each kind with its own settings below it."""
    tables = [_rows_of(name, kind) for kind in kinds]
    first, *others = tables
    shared = {key: row for key, row in first.items() if all(t.get(key) == row for t in others)}
    lines = [*shared.values()]
    for kind, rows in zip(kinds, tables, strict=True) if others else ():
        lines.append(_kind_row(name, kind))
        own = [row for key, row in rows.items() if key not in shared]
        lines += [row if row not in lines else _without_meaning(row) for row in own]
    return _table(lines)


def _others(config: type[CommandConfig], known: Mapping[str, str]) -> Iterator[str]:
    """Yield the settings of a command, after the names of those that others have too."""
    rows: Rows = {}
    same: dict[str, dict[str, None]] = {}
    sources: dict[str, set[str | None]] = {}
    for section, found in _sections(config):
        for name, row in found.items():
            sources.setdefault(section or name, set()).add(known.get(row))
            if row in known:
                same.setdefault(known[row], {})[name] = None
            else:
                rows[name] = row
    for command, names in same.items():
        whole = {section for section, found in sources.items() if found == {command}}
        shown = dict.fromkeys(s if (s := n.partition(".")[0]) in whole else n for n in names)
        yield f"As for `{command}`: {', '.join(f'`{name}`' for name in shown)}.\n"
    yield _table(rows.values())


def _sections(config: type[CommandConfig]) -> Iterator[tuple[str, Rows]]:
    """Yield section and rows of each kind of a command's sections; "" for those without one."""
    for name, field in config.model_fields.items():
        kinds = sections_of(field.annotation)
        if not kinds:
            yield "", {name: _row(name, field, _default(field))}
        for kind in kinds:
            yield name, _rows_of(name, kind)


def _rows_of(name: str, kind: type[Section]) -> Rows:
    tag = kind.tag if issubclass(kind, Variant) else None
    of_kind = getattr(kind, "kind", None)
    return {
        f"{name}.{key}": _row(
            f"{name}.{key}", field, getattr(of_kind, key, None) or _default(field)
        )
        for key, field in kind.model_fields.items()
        if key != tag
    }


def _kind_row(section: str, kind: type[Section]) -> str:
    assert issubclass(kind, Variant)
    default = kind.model_fields[kind.tag].default
    return f"|**`{section}.{kind.tag}`**|**`{default}`**||"


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


def _table(rows: Iterable[str]) -> str:
    return "\n".join([HEADER, *rows]) + "\n"


def _without_meaning(row: str) -> str:
    return "|".join([*row.split("|")[:3], "as above|"])


def _row(name: str, field: FieldInfo, default: Any) -> str:
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    shown = "" if default is None else f"`{json.dumps(default)}`"
    return f"|`{name}`|{shown}|{meaning}|"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
