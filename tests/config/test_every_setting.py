"""No setting passes in silence: each integration reads, translates, refuses it, or says it is idle.

Nothing here needs a framework, but for TRL's own options.
"""

import dataclasses
import re
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from rollwise.config import make_config
from rollwise.config.base import nested
from rollwise.config.choices import CHOICES
from rollwise.config.sections import Section, settings_of
from rollwise.config.step import step_recipe
from rollwise.errors import ConfigError
from rollwise.integrations.slime import settings as slime
from rollwise.integrations.tinker import backend as tinker
from rollwise.integrations.verl.overrides import overrides
from rollwise.integrations.verl.settings import train_config, unsupported
from rollwise.step import StepRecipe

ROOT = Path(__file__).parents[2]
FUNCTIONS = {"a": "operator:eq", "b": "math"}
NEEDED = {"function": [{"function": "operator:eq"}, {"functions": FUNCTIONS}]}
"""Settings without which a kind cannot be chosen; ones that exclude each other."""

OTHER_VALUES = [False, True, 0.4, 0.7, 1, 2, 3, 4, 8, 64, 5000]
OTHER_VALUES += ["single", "log", "cpu", "http://h/v1", "env", "operator:ne", ["level"]]
OTHER_VALUES += [{"a": 2}, {"a": "math"}, "b"]

VERL_READS = {
    # `make_sampler` makes sampler and belief of these sections.
    *("prompts.*", "belief.*"),
    # `write_data` writes files by these.
    *(f"data.{name}" for name in ("train", "heldout", "subset", "split", "heldout_split")),
    *("data.instruction", "data.problem_column", "data.answer_column", "data.system_prompt"),
    *("data.min_terms", "data.max_terms", "data.problems", "evaluation.problems"),
    *("data.environment", "data.environment_arguments", "data.reasoning_gym_prompt"),
    # The workers' `make_grader`, and the driver.
    *("grading.*", "plugin_folder", "records.prompts_per_step"),
}


def settings_of_train(*base):
    """Yield the name of each setting, settings, and the same with another value of it."""
    config = make_config(*base)
    for section, value in vars(config).items():
        if not isinstance(value, Section):
            yield section, *changed(section, base)
            continue
        registry = CHOICES.get(section)
        kinds = registry.kinds if registry else [None]
        for kind, needed in [(k, each) for k in kinds for each in NEEDED.get(k, [{}])]:
            layers = base
            if kind is not None:
                layers = *base, {section: {registry.tag: kind, **needed}}
                if kind != getattr(value, registry.tag):
                    yield f"{section}.{registry.tag}", base, layers
            of_kind = getattr(make_config(*layers), section)
            for field in vars(of_kind):
                if registry is None or field != registry.tag:
                    yield f"{section}.{field}", *changed(f"{section}.{field}", layers)


def changed(name, layers):
    """Return `layers`, and the same with another value of a setting; twice the same if none is."""
    config = make_config(*layers)
    section, _, field = name.rpartition(".")
    model = getattr(config, section) if section else config
    now, hint = getattr(model, field), settings_of(type(model))[field].hint
    for value in (*get_args(hint), *OTHER_VALUES):
        try:
            other = make_config(*layers, nested((name, value)))
        except (ConfigError, TypeError):
            continue
        if getattr(getattr(other, section) if section else other, field) != now:
            return layers, (*layers, nested((name, value)))
    return layers, layers


def idle(page):
    """The settings that a page says to have no effect."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (sentence,) = (part for part in re.split(r"(?<=\.)\s", text) if "have no effect" in part)
    return set(re.findall(r"`([a-z_.*]+)`", sentence))


def silent(settings, *heeds):
    """The settings of which none of `heeds`, given name, settings and others, is true."""
    return {
        name
        for name, *layers in settings
        if len({len(layer) for layer in layers}) > 1
        and not any(heed(name, *layers) for heed in heeds)
    }


def in_recipe(name, before, after):
    return step_recipe(make_config(*before)) != step_recipe(make_config(*after))


def test_a_setting_is_heeded_refused_or_said_to_be_idle_by_verl():
    def derived(layers):
        files = Path("train"), Path("heldout")
        return overrides(train_config(*layers), {}, {}, Path("run"), files)

    def translated(name, before, after):
        return derived(before) != derived(after)

    def refused(name, before, after):
        return any(unsupported(train_config(*layers)) for layers in (before, after))

    def said(name, before, after):
        return any(fnmatch(name, known) for known in VERL_READS | idle("verl.md"))

    settings = settings_of_train(
        {
            "method": "reinforce_ada",
            "model": {"lora_rank": 8},
            "learner": {"old_logprobs": "learner"},
        }
    )
    assert silent(settings, said, refused, translated, in_recipe) == set(), (
        "add it to `VERL_READS`, to `overrides` or `unsupported`, or to docs/verl.md as idle"
    )


def test_a_setting_of_model_engine_or_learner_is_heeded_refused_or_said_to_be_idle_by_tinker():
    """All others are read by `rollwise train`, whose loop it is."""
    folder = ROOT / "src/rollwise/integrations/tinker"
    source = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))

    def read(name, before, after):
        field = name.rpartition(".")[2]
        return re.search(rf"\b(_?settings|_?model|config|engine)\.{field}\b", source)

    def refused(name, before, after):
        return tinker.unsupported(make_config(*after))

    def said(name, before, after):
        return name in idle("tinker.md")

    base = {"method": "reinforce_ada", "backend": {"type": "tinker"}}
    settings = [
        setting
        for setting in settings_of_train(base)
        if setting[0].partition(".")[0] in ("model", "engine", "learner")
    ]
    assert silent(settings, read, refused, said, in_recipe) == set()


def test_a_setting_is_heeded_or_refused_by_slime():
    def refused(name, before, after):
        return name.partition(".")[0] not in slime.SECTIONS and name != slime.THRESHOLD

    def made_into_a_sampler(name, before, after):
        return name == "plugin_folder" or name.startswith(("prompts.", "belief."))

    settings = settings_of_train({"method": "grpo"})
    assert silent(settings, refused, made_into_a_sampler, in_recipe) == set()


@pytest.mark.trl
def test_a_field_of_the_recipe_is_taken_or_decided_by_trl():
    options = pytest.importorskip("rollwise.integrations.trl.options", exc_type=ImportError)
    AdaptiveSampling = options.AdaptiveSampling

    by_trl = {"scale_by_std", "average", "seed"}  # scale_rewards, loss_type, seed
    own = {"prompt_sampler", "engine", "engine_batch_size"}
    fields = {field.name: field for field in dataclasses.fields(AdaptiveSampling)}
    recipe = {field.name for field in dataclasses.fields(StepRecipe)}
    assert {name for name in recipe if not fields[name].init} == by_trl
    assert fields.keys() - recipe == own
    given = {"zero_variance": "refill", "refills": 7, "strategy": "max_variance"}
    names = {"num_generations": 4, "scale_rewards": "none", "loss_type": "dapo", "seed": 3}
    made = AdaptiveSampling(**given).recipe(SimpleNamespace(**names))
    assert {name: getattr(made, name) for name in given} == given


def test_another_value_of_each_setting_was_tried():
    settings = [*settings_of_train({"method": "grpo"})]
    tried = {name for name, before, after in settings if len(before) != len(after)}
    assert tried == {name for name, *_ in settings}
