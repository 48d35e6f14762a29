"""Sections of the settings, and those among them that choose one of several kinds by `type`.

A kind is a dataclass: one of ours, from the registry of its package, or one of the user's, by
`module:Class`. Its fields are the settings of the section, so that they are declared once.
"""

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticCustomError

from rollwise.errors import ConfigError, RollwiseError, one_line
from rollwise.plugins import is_plugin, load_plugin, plugin_folders, raised_in_plugin

AT_A_TIME = 2**20
"""The most of anything that is in memory at a time: a number above it is a slip."""

NO_SOURCE: dict[str, Any] = {"use_attribute_docstrings": False}
"""Keeps pydantic from searching for the source of a class that has none: it asks every module that
is loaded, which takes seconds once transformers is."""

UNKNOWN_KIND = "unknown_kind"
"""The type of pydantic's error where a section names a kind that does not exist."""


class Settings(BaseModel):
    """Settings that are declared as fields; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_is_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` and `false` for numbers: pydantic takes them as 1 and 0."""
        if isinstance(value, bool):
            wanted = plain_types(cls.model_fields[str(info.field_name)].annotation)
            if wanted & {int, float} and bool not in wanted:
                raise ValueError("should be a number")
        return value


def differs(settings: BaseModel, name: str) -> bool:
    """Say whether a setting has another value than its default."""
    field = type(settings).model_fields[name]
    return bool(getattr(settings, name) != field.get_default(call_default_factory=True))


class Section(Settings):
    """A part of the settings."""

    @classmethod
    def variants(cls, given: Mapping[str, Any] | None = None) -> list[type["Section"]]:
        """List what the section can be: this alone, or one for each kind."""
        return [cls]


class Variant(Section):
    """A section of one of several kinds, with the settings that all of them share.

    A subclass stands for the section. Validating a table makes it one of the kind that the table
    names: `of(kind)`, which also has the settings of the kind.

    Attributes:
        section: Its name.
        kinds: The built-in kinds, name -> class.
        default: The kind that is taken if none is named.
        tag: The setting that names the kind.
        verbs: Methods of which a user's class needs at least one.
        parent: The `module:Class` that a user's class must inherit from; "" for any.
        given: Fields that are not settings, because they are given to every kind.
        carries: Where the command line names another kind, whether the file's settings stay that
            this kind has too; otherwise only those that all kinds share stay.
        kind: What is made: a dataclass, whose fields are the settings of this kind alone.
    """

    section: ClassVar[str]
    kinds: ClassVar[Mapping[str, type]]
    default: ClassVar[str]
    tag: ClassVar[str] = "type"
    verbs: ClassVar[tuple[str, ...]] = ()
    parent: ClassVar[str] = ""
    given: ClassVar[tuple[str, ...]] = ()
    carries: ClassVar[bool] = False
    kind: ClassVar[Any] = None

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(
        cls, value: Any, validate: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if cls.kind is not None or not isinstance(value, Mapping):
            return validate(value)
        named = value.get(cls.tag, cls.default)
        if not isinstance(named, str) or not (is_plugin(named) or named in cls.kinds):
            expected = ", ".join(f"`{kind}`" for kind in cls.kinds)
            raise PydanticCustomError(
                UNKNOWN_KIND,
                "should be one of {kinds}, or `module:Class` of your own; it is {named}",
                {"kinds": expected, "named": f"{named!r:.300}"},
            )
        kind = cls.of(named, (info.context or {}).get("plugin_folder"))
        return kind.model_validate(value, context=info.context)

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        try:
            if self.kind is not None:
                self._try()
        except (RollwiseError, ValueError):
            raise
        except Exception as error:  # a user's class may raise anything for a bad value
            if not (isinstance(error, TypeError) or is_plugin(getattr(self, self.tag))):
                raise
            said = str(error) if type(error) is TypeError else one_line(error)
            raise ValueError(raised_in_plugin(error) or said) from None
        return self

    def _try(self) -> None:
        """Let what is chosen check its settings."""
        self.make()

    def own(self) -> dict[str, Any]:
        """Return the settings of the kind, without those that all kinds share."""
        return {field.name: getattr(self, field.name) for field in self._settings_of(self.kind)}

    def make(self) -> Any:
        """Make what is chosen."""
        return self.kind(**self.own())

    @classmethod
    def of(cls, kind: str, folder: Any = None) -> type[Self]:
        """Return the section for a kind, which may be a `module:Class` in `folder`."""
        found = cls._load(kind, folder) if is_plugin(kind) else cls.kinds[kind]
        made: type[Self] = _section(cls, kind, found)
        return made

    @classmethod
    def variants(cls, given: Mapping[str, Any] | None = None) -> list[type[Section]]:
        """List the section for each built-in kind, and for the plug-in that settings name."""
        plugin = cls.plugin(given or {})
        kinds = [*cls.kinds, *([plugin] if plugin else [])]
        return [cls.of(kind, (given or {}).get("plugin_folder")) for kind in kinds]

    @classmethod
    def plugin(cls, given: Mapping[str, Any]) -> str:
        """Return the `module:Class` that settings name for this section; "" if they name none."""
        section = given.get(cls.section)
        named = section.get(cls.tag) if isinstance(section, Mapping) else None
        return str(named) if is_plugin(named) else ""

    @classmethod
    def kept_for(cls, kind: str) -> set[str]:
        """Name the settings that stay where another layer names this kind."""
        carries = cls.carries and kind in cls.kinds
        carried = cls._settings_of(cls.kinds[kind]) if carries else ()
        return {*cls.model_fields, *(field.name for field in carried)}

    @classmethod
    def _settings_of(cls, kind: type) -> list[dataclasses.Field[Any]]:
        return [f for f in dataclasses.fields(kind) if f.init and f.name not in cls.given]

    @classmethod
    def _load(cls, plugin: str, folder: Any) -> Any:
        try:
            found = load_plugin(plugin, plugin_folders(str(folder) if folder else None))
        except ConfigError as error:
            raise cls._refusal(str(error)) from None
        except Exception as error:  # the module is the user's: whatever is wrong, say where
            said = f"importing {plugin!r} failed: {type(error).__name__}: {error}"
            raise cls._refusal(said) from error
        if lacks := cls._lack(found):
            verbs = " or ".join(f"`{verb}`" for verb in cls.verbs)
            parent = cls.parent.replace(":", ".")
            parent = f" that inherits from `{parent}`" if parent else ""
            raise cls._refusal(f"{plugin!r} should be a dataclass with {verbs}{parent}; it {lacks}")
        taken = {*cls.model_fields} - {*cls.given}
        if clash := sorted(taken & {field.name for field in cls._settings_of(found)}):
            raise cls._refusal(
                f"{plugin!r} has a field `{clash[0]}`, which every `{cls.section}` has; give it "
                "another name"
            )
        return found

    @classmethod
    def _lack(cls, found: Any) -> str:
        """Say what a user's class lacks to be of this section; "" if nothing."""
        if not inspect.isclass(found):
            return f"is a {type(found).__name__}"
        if not any(callable(getattr(found, verb, None)) for verb in cls.verbs):
            return f"has no {' or '.join(f'`{verb}`' for verb in cls.verbs)}"
        if cls.parent and not issubclass(found, load_plugin(cls.parent, ())):
            return "does not inherit from it"
        if undefined := sorted(getattr(found, "__abstractmethods__", ())):
            return f"lacks {' and '.join(f'`{verb}`' for verb in undefined)}"
        # The base classes are dataclasses, so `is_dataclass` would be true by inheritance.
        return "" if "__dataclass_fields__" in vars(found) else "is not a dataclass"

    @classmethod
    def _refusal(cls, message: str) -> ConfigError:
        return ConfigError(f"`{cls.section}.{cls.tag}`: {message}")


class VariantByType(Variant):
    """A section whose kind is named by the setting `type`."""

    type: str


@functools.cache
def _section(base: type[Variant], name: str, kind: type) -> Any:
    """Make the section for one kind; the same one for the same kind."""
    fields = base._settings_of(kind)
    summary = next(iter((kind.__doc__ or "").strip().splitlines()), "")
    create: Any = create_model  # whose result is known only when this runs
    try:
        hints = get_type_hints(kind)
        own = {field.name: (hints[field.name], _field_info(field)) for field in fields}
        own[base.tag] = Literal[name], Field(name, description=summary)
        made: type[Variant] = create(
            kind.__name__, __base__=base, __doc__=summary, __cls_kwargs__=NO_SOURCE, **own
        )
    except NameError as error:
        raise base._refusal(f"the type of a field of {name!r} is unknown: {error}") from None
    except PydanticSchemaGenerationError as error:
        said = error.message.splitlines()[0]
        raise base._refusal(
            f"a field of {name!r} has a type that no setting can have: {said}"
        ) from None
    made.kind = kind
    return made


def _field_info(field: dataclasses.Field[Any]) -> Any:
    given = {name: getattr(field, name) for name in ("default", "default_factory")}
    default: dict[str, Any] = {n: v for n, v in given.items() if v is not dataclasses.MISSING}
    return Field(description=field.metadata.get("help", ""), validate_default=True, **default)


def chosen() -> Any:
    """Make the default of a field that holds a variant: its default kind, with its defaults."""
    return Field(default_factory=dict, validate_default=True)


def plain_types(annotation: Any) -> set[Any]:
    """Return the types that a setting may have, without their parameters."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return {type(value) for value in inner}
    if origin is Annotated:
        return plain_types(inner[0])
    if origin in (Union, UnionType):
        return set().union(*map(plain_types, inner))
    return {origin or annotation}
