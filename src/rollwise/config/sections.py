"""Sections of the settings, and those among them that choose one of several kinds by `type`.

A kind is a dataclass: one of ours, from the registry of its package, or one of the user's, by
`module:Class`. Its fields are the settings of the section, so that they are declared once.
"""

import dataclasses
import functools
import inspect
import operator
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic.errors import PydanticSchemaGenerationError

from rollwise.errors import ConfigError, RollwiseError, one_line
from rollwise.plugins import is_plugin, load_plugin, plugin_folders, raised_in_plugin

AT_A_TIME = 2**20
"""What nothing in memory at a time can be more of: a number above it is a slip."""

NO_SOURCE: dict[str, Any] = {"use_attribute_docstrings": False}
"""Pydantic need not search for the source of a class that has none: it asks every module that is
loaded, for seconds in all once transformers is."""


class Section(BaseModel):
    """A part of the settings; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Variant(Section):
    """One kind of a section; a subclass adds settings that all kinds share.

    Attributes:
        tag: The setting that names the kind.
        verbs: The methods of which a class of the user's needs at least one.
        parent: The `module:Class` that a class of the user's must inherit from; "" for any.
        given: Fields that are no settings, for they are given to every kind.
        carries: Where another kind is named on the command line, settings of the file stay that
            this kind has too; otherwise only those that all kinds share.
        kind: What is made: a dataclass, whose fields are the settings of its own.
        own_names: The names of these settings.
    """

    tag: ClassVar[str] = "type"
    verbs: ClassVar[tuple[str, ...]] = ()
    parent: ClassVar[str] = ""
    given: ClassVar[tuple[str, ...]] = ()
    carries: ClassVar[bool] = False
    kind: ClassVar[Any] = None
    own_names: ClassVar[tuple[str, ...]] = ()

    def own(self) -> dict[str, Any]:
        """Return the settings of the kind, without those that all kinds share."""
        return {name: getattr(self, name) for name in self.own_names}

    def make(self) -> Any:
        """Make what is chosen."""
        return self.kind(**self.own())

    def _try(self) -> None:
        """Let what is chosen check its settings."""
        self.make()

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        try:
            if self.kind is not None:
                self._try()
        except (RollwiseError, ValueError):
            raise
        except Exception as error:  # a class of the user's may raise anything for a bad value
            if not (isinstance(error, TypeError) or is_plugin(getattr(self, self.tag))):
                raise
            said = str(error) if type(error) is TypeError else one_line(error)
            raise ValueError(raised_in_plugin(error) or said) from None
        return self


class VariantByType(Variant):
    """A kind that is named by the setting `type`."""

    type: str


@dataclasses.dataclass(frozen=True, eq=False)
class Registry:
    """The kinds that a section can be of.

    Args:
        name: The section's.
        kinds: Name -> class, of ours.
        default: The kind that is taken where nothing is said.
        base: What all kinds have in common.
    """

    name: str
    kinds: Mapping[str, type]
    default: str
    base: type[Variant]

    @property
    def tag(self) -> str:
        """The setting that names the kind."""
        return self.base.tag

    def sections(self, plugin: str = "", folder: str | None = None) -> Any:
        """Return the type of a field that holds this section: any kind's, and that of a plug-in.

        Raises:
            ConfigError: There is no such class, or it cannot be used here.
        """
        kinds = {**self.kinds, **({plugin: self._load(plugin, folder)} if plugin else {})}
        union = functools.reduce(operator.or_, (_section(self, *item) for item in kinds.items()))
        return Annotated[union, Field(discriminator=self.tag)]

    def variant(self, name: str) -> type[Variant]:
        """Return the section for one of our kinds; a KeyError if it is none."""
        return _section(self, name, self.kinds[name])

    def plugin(self, given: Mapping[str, Any]) -> str:
        """Return the `module:Class` that settings name for this section; "" if they name none."""
        section = given.get(self.name)
        named = section.get(self.tag) if isinstance(section, Mapping) else None
        return str(named) if is_plugin(named) else ""

    def kept_for(self, kind: str) -> set[str]:
        """Name the settings that stay where another layer names this kind."""
        carries = self.base.carries and kind in self.kinds
        carried = self._settings_of(self.kinds[kind]) if carries else ()
        return {*self.base.model_fields, *(field.name for field in carried)}

    def _settings_of(self, kind: type) -> list[dataclasses.Field[Any]]:
        return [f for f in dataclasses.fields(kind) if f.init and f.name not in self.base.given]

    def _load(self, plugin: str, folder: str | None) -> Any:
        try:
            found = load_plugin(plugin, plugin_folders(folder))
        except ConfigError as error:
            raise self._refusal(str(error)) from None
        except Exception as error:  # the module is the user's: whatever is wrong, say where
            said = f"importing {plugin!r} failed: {type(error).__name__}: {error}"
            raise self._refusal(said) from error
        if lacks := self._lack(found):
            verbs = " or ".join(f"`{verb}`" for verb in self.base.verbs)
            parent = self.base.parent.replace(":", ".")
            parent = f" that inherits from `{parent}`" if parent else ""
            raise self._refusal(
                f"{plugin!r} should be a dataclass with {verbs}{parent}; it {lacks}"
            )
        taken = {*self.base.model_fields, self.tag} - {*self.base.given}
        if clash := sorted(taken & {field.name for field in self._settings_of(found)}):
            raise self._refusal(
                f"{plugin!r} has a field `{clash[0]}`, which every `{self.name}` has; give it "
                "another name"
            )
        return found

    def _lack(self, found: Any) -> str:
        """Say what a class of the user's lacks to be of this section; "" if nothing."""
        verbs, parent = self.base.verbs, self.base.parent
        if not inspect.isclass(found):
            return f"is a {type(found).__name__}"
        if not any(callable(getattr(found, verb, None)) for verb in verbs):
            return f"has no {' or '.join(f'`{verb}`' for verb in verbs)}"
        if parent and not issubclass(found, load_plugin(parent, ())):
            return "does not inherit from it"
        if undefined := sorted(getattr(found, "__abstractmethods__", ())):
            return f"lacks {' and '.join(f'`{verb}`' for verb in undefined)}"
        # The base classes are dataclasses, so `is_dataclass` would be true by inheritance.
        return "" if "__dataclass_fields__" in vars(found) else "is no dataclass"

    def _refusal(self, message: str) -> ConfigError:
        return ConfigError(f"`{self.name}.{self.tag}`: {message}")


@functools.cache
def _section(registry: Registry, name: str, kind: type) -> type[Variant]:
    """Make the section for one kind; the same one for the same kind."""
    fields = registry._settings_of(kind)
    summary = next(iter((kind.__doc__ or "").strip().splitlines()), "")
    create: Any = create_model  # whose result is known only when this runs
    try:
        hints = get_type_hints(kind)
        own = {field.name: (hints[field.name], _field_info(field)) for field in fields}
        own[registry.tag] = Literal[name], Field(name, description=summary)
        made: type[Variant] = create(
            kind.__name__, __base__=registry.base, __doc__=summary, __cls_kwargs__=NO_SOURCE, **own
        )
    except NameError as error:
        raise registry._refusal(f"the type of a field of {name!r} is unknown: {error}") from None
    except PydanticSchemaGenerationError as error:
        said = error.message.splitlines()[0]
        raise registry._refusal(
            f"a field of {name!r} has a type that no setting can have: {said}"
        ) from None
    made.kind, made.own_names = kind, tuple(field.name for field in fields)
    return made


def _field_info(field: dataclasses.Field[Any]) -> Any:
    default: dict[str, Any] = {}
    if field.default is not dataclasses.MISSING:
        default["default"] = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default["default_factory"] = field.default_factory
    return Field(description=field.metadata.get("help", ""), validate_default=True, **default)


def chosen() -> Any:
    """Make the default of a field that holds a variant: its default kind, with its defaults."""
    return Field(default_factory=dict, validate_default=True)
