"""How settings are declared, and how a value is read.

A setting is a field of a dataclass: its type with limits, its default, and the sentence below it.
"""

import ast
import dataclasses
import functools
import inspect
import sys
from contextlib import suppress
from dataclasses import MISSING, dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, dataclass_transform

from annotated_types import Ge, Le
from pydantic import TypeAdapter, ValidationError

from rollwise.sampling.checks import Checked, hints_of, plain_types

Few = Annotated[int, Ge(1), Le(4096)]
Held = Annotated[int, Ge(1), Le(2**20)]
"""A count of things that are held in memory at once; more must be a slip."""

LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
TYPES = {"int": "an integer", "float": "a number", "bool": "true or false", "dict": "a table"}
TYPES |= {"str": "a text", "string": "a text", "list": "a list", "literal": "{expected}"}
"""What a value must be, by its type, with whose name the types of pydantic's errors begin."""


@dataclass(frozen=True)
class Setting:
    """A setting, as the field `field` of the class `owner` declares it; it may have no default."""

    owner: type
    field: str
    hint: Any
    default: Any
    help: str

    @functools.cached_property
    def reader(self) -> TypeAdapter[Any]:
        """What reads its values."""
        return TypeAdapter(self.hint)

    @property
    def section(self) -> "type[Section] | None":
        """The section that it is; None if it is none."""
        is_one = isinstance(self.hint, type) and issubclass(self.hint, Section)
        return self.hint if is_one else None

    @property
    def meaning(self) -> str:
        """The sentence below the field."""
        kinds = self.owner.__mro__
        found = (_sentences(kind.__module__).get((kind.__name__, self.field)) for kind in kinds)
        return " ".join((self.help or next(filter(None, found), "")).split())

    def read(self, name: str, value: Any, wrong: dict[str, str]) -> Any:
        """Return a value as its type has it; if it is `wrong`, that says why."""
        types = plain_types(self.hint)
        if isinstance(value, bool) and bool not in types and types & {int, float}:
            wrong[name] = f"`{name}` must be a number; it is {value}"
            return None
        try:
            return self.reader.validate_python(value)
        except ValidationError as error:
            for problem in error.errors():
                place = ".".join([name, *map(str, problem["loc"])])
                wrong[place] = f"`{place}` {_in_words(problem)}"


def _in_words(problem: Any) -> str:
    """Say what a value must be, by the type of pydantic's error, and what it is."""
    context, kind = problem.get("ctx", {}), problem["type"].partition("_")[0]
    limits = (f"{words} {context[end]:,}" for end, words in LIMITS.items() if end in context)
    wanted = next(limits, TYPES.get(kind, "")).removesuffix(".0").format(**context)
    must = f"must be {wanted}" if wanted else f"is refused: {context.get('error', problem['msg'])}"
    return f"{must.replace(chr(39), '`')}; it is {problem['input']!r:.300}"


@functools.cache
def _sentences(module: str) -> dict[tuple[str, str], str]:
    """Return the text below each field of a module's classes, by the names of both."""
    found = {}
    with suppress(OSError, TypeError):  # it has no source
        nodes = ast.walk(ast.parse(inspect.getsource(sys.modules[module])))
        for kind in (node for node in nodes if isinstance(node, ast.ClassDef)):
            for field, below in pairwise(kind.body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                        found[kind.name, name] = text
    return found


def settings_of(section: Any) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, by name."""
    return _settings(section)


@functools.cache
def _settings(section: type) -> dict[str, Setting]:
    found = {}
    for field in dataclasses.fields(section):
        owner, name = field.metadata.get("declared", (section, field.name))
        default = field.default if field.default_factory is MISSING else field.default_factory()
        help = field.metadata.get("help", "")
        found[field.name] = Setting(owner, name, hints_of(owner)[name], default, help)
    return found


def declared_in(owner: type, name: str) -> Any:
    """Declare a field as a dataclass, `owner`, declares one."""
    field: Any = owner.__dataclass_fields__[name]  # type: ignore[attr-defined]
    metadata = {**field.metadata, "declared": (owner, name)}
    defaults = {"default": field.default, "default_factory": field.default_factory}
    return dataclasses.field(metadata=metadata, **defaults)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Section(Checked):
    """A part of the settings; a subclass is a dataclass.

    A value of the section itself is taken to be for the setting that `meant` names.
    """

    meant: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check()

    def _check(self) -> None:
        """Refuse, by a `ValueError`, values that do not fit together."""


def differs(section: Section, name: str) -> bool:
    """Return whether a setting, or one of a section, has another value than its default."""
    value = getattr(section, name)
    if isinstance(value, Section):
        return any(differs(value, each) for each in settings_of(type(value)))
    return bool(value != settings_of(type(section))[name].default)
