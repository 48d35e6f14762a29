"""Write docs/settings.md from the settings themselves.

python scripts/write_settings_page.py
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollwise.config import KINDS, CommandConfig, TrainConfig, make_config
from rollwise.config.choices import CHOICES
from rollwise.config.reading import sections_of
from rollwise.config.sections import Section, Setting, settings_of
from rollwise.config.variants import Variant
from rollwise.grading import GRADERS
from rollwise.methods import METHODS, SECTIONS
from rollwise.records import flatten

PAGE = Path(__file__).parents[1] / "docs/settings.md"
INTRODUCTION = """\
# Settings

In TOML, `section.key` is `key` under `[section]`. On the command line it is `--section.key VALUE`,
with `=` between them if the value begins with `-`: a list as `a,b`, a table as JSON. The command
line wins over the file, the file over the defaults.
`rollwise train --help learner` prints a section.

{contents}

## Methods

`method` names how prompts are sampled and learned from. It sets everything in `prompts`, `belief`,
`exit`, `schedule`, `allocation`, `group`, `advantage`, `step` and `learner`. Any other setting
changes itself alone, and what [follows from it](#defaults-that-depend-on-other-settings). The
learner is as [the study](study.md#the-settings-of-each-method) chose, unless the source says
otherwise. `rollwise train --method NAME --print` shows all settings, each with where it is from.

{methods}

## Sections with a type

Some sections choose a kind by `type` (`advantage` by `objective`), or name a [class of your
own](plugins.md) as `module:Class`. The table begins with the keys that all kinds share. Each kind,
in bold, is followed by its own, and accepts no others. If the command line names another kind, the
file's keys of its kind are dropped, except those of `advantage` that the other objective has too.

## Defaults that depend on other settings

- `method`: `single` if the grader gives 0 and 1 ({right_or_wrong}) and `episode.type` is
  `none`, else `grpo`. The tables below show what `single` has.
- `exit.type = "fixed_count"`: `schedule` is one round of `exit.samples`, which `group.size` is too.
- `allocation.type`: `exit` is `fixed_count` with `allocation.maximum`, `schedule` a round of that.
- `engine.type = "transformers"`: `learner.old_logprobs` is `engine`.
- A built-in model, or a run of it: `model.cpu_threads` is 1, `learner.learning_rate` that of
  the method, `engine.max_new_tokens` 48, `engine.batch_size` 512.
- `data.train = "tool-sums"`: `model.path` is `tool-sums`, `episode.type` `calculator`.
- `tokens` or `seconds`: `steps` has no limit.
- `evaluation.every_tokens`: `evaluation.every` is 0.
- `backend.type = "tinker"`: `model.lora_rank` is 32.
- A built-in task: `grading.type` is `exact`.
- `data.environment`: `data.train` and `grading.type` are `environment`, `benchmarks` and
  `data.sources` `["environment"]`.
- `evaluate` and `prepare`: with vLLM, `engine.gpu_memory_utilization` is 0.9; a run of `train` as
  model has the run's `engine.max_new_tokens`. With your own model, `benchmarks` is `["math500"]`;
  with a built-in one or a run of it, its task.
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

FOLLOWING = ("schedule.type", "schedule.size", "schedule.rounds", "group.size")
"""What follows from other settings."""


def _method_settings(name: str) -> dict[str, Any]:
    """Return what a method sets, with a model and data of one's own."""
    own = {"method": name, "model": {"path": "MODEL"}, "data": {"train": "FILE"}}
    whole = asdict(make_config(own))
    return flatten({section: whole[section] for section in SECTIONS}, ".")


USUAL = _method_settings("single")
"""What `rollwise train` has."""

Rows = dict[str, str]
"""The row of each setting, by its name."""


def page() -> str:
    """Write all settings: `train` section by section, and of other commands what differs."""
    train = list(_train_sections())
    known: dict[str, str] = {}
    binary = ", ".join(f"`{name}`" for name, kind in GRADERS.items() if kind.right_or_wrong)
    parts = [INTRODUCTION.format(contents=_contents(), methods=_methods(), right_or_wrong=binary)]
    for command, config in KINDS.items():
        parts.append(f"## `rollwise {command}`\n\n{GUIDES[command]}\n")
        parts += train if command == "train" else _others(config, known)
        for _, rows in _sections(config):
            known = dict.fromkeys(rows.values(), command) | known
    return "\n".join(parts)


def _contents() -> str:
    names = [name for name, each in settings_of(TrainConfig).items() if each.section]
    links = [f"- [`rollwise {command}`](#rollwise-{command})" for command in KINDS]
    links[0] += ": " + ", ".join(f"[{name}](#{name})" for name in names)
    return "\n".join(links)


def _methods() -> str:
    """Write a table of the methods: what they do, where they are from, how they differ."""
    lines = ["|`method`|what it does|source|settings, by which it differs|", "|---|---|---|---|"]
    for name, method in METHODS.items():
        named, base = flatten(method.settings, "."), _method_settings(method.like)
        differs = (
            f"`{key}` {json.dumps(value).strip(chr(34))}"
            for key, value in _method_settings(name).items()
            if key not in FOLLOWING and (value != base[key] if key in base else key in named)
        )
        chosen = METHODS["single"].learns
        learns = "" if method.learns == chosen else f"; learner {method.learns}"
        lines.append(
            f"|`{name}`|{method.about}|{method.source}{learns}|{_from(method.like, list(differs))}|"
        )
    return "\n".join(lines)


def _from(like: str, differs: Sequence[str]) -> str:
    return f"of `{like}`, but {', '.join(differs)}" if differs else ""


def _train_sections() -> Iterator[str]:
    """Yield a table of the settings without a section, then one for each section."""
    settings = settings_of(TrainConfig).items()
    yield _table(_row(name, each, each.default) for name, each in settings if not each.section)
    for name, each in settings:
        if kinds := sections_of(each):
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
    for name, each in settings_of(config).items():
        if not each.section:
            yield "", {name: _row(name, each, each.default)}
        for kind in sections_of(each):
            yield name, _rows_of(name, kind)


def _rows_of(name: str, kind: type[Section]) -> Rows:
    tag, of_kind = getattr(kind, "tag", None), getattr(kind, "kind", None)
    return {
        f"{name}.{key}": _row(
            f"{name}.{key}",
            each,
            _usual(name, key, kind, getattr(of_kind, key, None) or each.default),
        )
        for key, each in settings_of(kind).items()
        if key != tag
    }


def _usual(name: str, key: str, kind: type[Section], default: Any) -> Any:
    """Return what a run has by default, where it has the setting, or else the kind's default."""
    if issubclass(kind, Variant) and not kind.keeps_common:
        is_usual = settings_of(kind)[kind.tag].default == USUAL.get(f"{name}.{kind.tag}")
        if not is_usual and key not in settings_of(CHOICES[name]):
            return default
    return USUAL.get(f"{name}.{key}", default)


def _kind_row(section: str, kind: type[Section]) -> str:
    assert issubclass(kind, Variant)
    default = settings_of(kind)[kind.tag].default
    return f"|**`{section}.{kind.tag}`**|**`{default}`**||"


def _table(rows: Iterable[str]) -> str:
    return "\n".join([HEADER, *rows]) + "\n"


def _without_meaning(row: str) -> str:
    return "|".join([*row.split("|")[:3], "as above|"])


def _row(name: str, each: Setting, default: Any) -> str:
    meaning = each.meaning.replace("|", "\\|")
    shown = "" if default is None else f"`{json.dumps(default)}`"
    return f"|`{name}`|{shown}|{meaning}|"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
