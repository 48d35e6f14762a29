"""Sections that choose one of several kinds by `type`, built-in ones or the user's."""

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic.errors import PydanticSchemaGenerationError

from rollwise.config.sections import Section, declared_in, settings_of
from rollwise.errors import ConfigError, RollwiseError, one_line
from rollwise.plugins import is_plugin, load_plugin, plugin_folders, raised_in_plugin


class Variant(Section):
    """A section of one of several kinds, with the settings that all of them share.

    A subclass `of(kind)` has the settings of the kind too: the fields of its dataclass.

    Attributes:
        section: Its name.
        kinds: The built-in kinds, name -> class.
        default: The kind that is taken if none is named.
        tag: The setting that names the kind.
        parent: The `module:Class` that a user's class must inherit from; "" for any.
        methods: Methods of which a user's class needs at least one.
        given: Fields that are not settings, because they are given to every kind.
        keeps_common: Where the command line names another kind, whether the file's settings that
            both kinds have stay; otherwise only those stay that all kinds share.
        kind: What is made: a dataclass, whose fields are the settings of this kind alone.
    """

    section: ClassVar[str]
    kinds: ClassVar[Mapping[str, type]]
    default: ClassVar[str]
    tag: ClassVar[str] = "type"
    parent: ClassVar[str] = ""
    methods: ClassVar[tuple[str, ...]] = ()
    given: ClassVar[tuple[str, ...]] = ()
    keeps_common: ClassVar[bool] = False
    kind: ClassVar[Any] = None

    if TYPE_CHECKING:  # where `tag` is not another
        type: str

    def _check(self) -> None:
        try:
            self._try()
        except (RollwiseError, ValueError):
            raise
        except Exception as error:  # a user's class may raise anything for a bad value
            if not (isinstance(error, TypeError) or is_plugin(getattr(self, self.tag))):
                raise
            said = str(error) if type(error) is TypeError else one_line(error)
            raise ValueError(raised_in_plugin(error) or said) from None

    def _try(self) -> None:
        self.make()

    def own(self) -> dict[str, Any]:
        """Return the settings of the kind, without those that all kinds share."""
        return {name: getattr(self, name) for name in self.fields_of(self.kind)}

    def make(self) -> Any:
        """Make what is chosen."""
        return self.kind(**self.own())

    @classmethod
    def of(cls, kind: str, folder: Any = None) -> Any:
        """Return the section for a kind, which may be a `module:Class` in `folder`."""
        base: Any = cls
        return _section(base, kind, cls._load(kind, folder) if is_plugin(kind) else cls.kinds[kind])

    @classmethod
    def plugin(cls, given: Mapping[str, Any]) -> str:
        """Return the `module:Class` that settings name for this section; "" if they name none."""
        section = given.get(cls.section)
        named = section.get(cls.tag) if isinstance(section, Mapping) else None
        return str(named) if is_plugin(named) else ""

    @classmethod
    def fields_of(cls, kind: Any) -> list[str]:
        """Return the names of the fields of a kind that are settings."""
        return [f.name for f in dataclasses.fields(kind) if f.init and f.name not in cls.given]

    @classmethod
    def _load(cls, plugin: str, folder: Any) -> Any:
        try:
            found = load_plugin(plugin, plugin_folders(str(folder) if folder else None))
        except ConfigError as error:
            raise cls.refusal(str(error)) from None
        except Exception as error:  # the module is the user's: whatever is wrong, say where
            raise cls.refusal(f"importing {plugin!r} failed: {one_line(error)}") from error
        if lacks := cls._missing_in(found):
            parent = cls.parent.replace(":", ".")
            wanted = f"that inherits from `{parent}`" if parent else f"with `{cls.methods[0]}`"
            raise cls.refusal(f"{plugin!r} should be a dataclass {wanted}; it {lacks}")
        if clash := sorted({*dir(cls)} & {*cls.fields_of(found)}):
            also = f"which every `{cls.section}` has; give it another name"
            raise cls.refusal(f"{plugin!r} has a field `{clash[0]}`, {also}")
        return found

    @classmethod
    def _missing_in(cls, found: Any) -> str:
        """Describe what a user's class lacks to be of this section; "" if nothing."""
        if not inspect.isclass(found):
            return f"is a {found.__class__.__name__}"
        if cls.parent and not issubclass(found, load_plugin(cls.parent, ())):
            return "does not"
        if cls.methods and not any(hasattr(found, verb) for verb in cls.methods):
            return "has none"
        if undefined := sorted(getattr(found, "__abstractmethods__", ())):
            return f"lacks {' and '.join(f'`{verb}`' for verb in undefined)}"
        # The base classes are dataclasses, so `is_dataclass` would be true by inheritance.
        return "" if "__dataclass_fields__" in vars(found) else "is not a dataclass"

    @classmethod
    def refusal(cls, message: str) -> ConfigError:
        """Make the error that names the setting of the kind."""
        return ConfigError(f"`{cls.section}.{cls.tag}`: {message}")


@functools.cache
def _section(base: type[Variant], name: str, kind: type) -> Any:
    summary = next(iter((kind.__doc__ or "").strip().splitlines()), "")
    names = base.fields_of(kind)
    members: dict[str, Any] = {each: declared_in(kind, each) for each in names}
    members[base.tag] = dataclasses.field(default=name, metadata={"help": summary})
    annotations = {base.tag: Literal[name], **dict.fromkeys(names, Any)}
    members |= {"kind": kind, "__doc__": summary, "__annotations__": annotations}
    made: Any = type(kind.__name__, (base,), members)
    try:
        for setting in settings_of(made).values() if is_plugin(name) else ():
            assert setting.reader
    except (NameError, PydanticSchemaGenerationError) as error:
        said = str(error).splitlines()[0]
        raise base.refusal(f"the type of a field of {name!r} is unknown: {said}") from None
    return made
