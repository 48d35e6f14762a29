"""Show a dataclass's field as its default and its help, in the Python reference.

Griffe reads sources, in which a field is written `field(default=4, metadata={"help": "..."})` or
`setting(4, "...")`. A docstring of the field itself is kept.
"""

import ast
from typing import Any, cast

import griffe

FIELD, SETTING = "dataclasses.field", "setting"


class Fields(griffe.Extension):
    """Give each field the value that it has by default, and its help as docstring."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go through all classes of a package, once its dataclasses are known."""
        show_fields(pkg)


def show_fields(parent: griffe.Module | griffe.Class) -> None:
    """Change the fields of all classes below `parent`."""
    for member in parent.members.values():
        if member.is_alias:
            continue
        if member.is_class or member.is_module:
            show_fields(cast("griffe.Module | griffe.Class", member))
        elif member.is_attribute and parent.is_class:
            attribute = cast(griffe.Attribute, member)
            attribute.value, text = shown(attribute.value)
            if text and attribute.docstring is None:
                attribute.docstring = griffe.Docstring(text, parent=attribute)
    if isinstance(parent, griffe.Class) and "__init__" in parent.members:
        for parameter in cast(griffe.Function, parent.members["__init__"]).parameters:
            parameter.default, _ = shown(parameter.default)


def shown(value: Any) -> tuple[Any, str]:
    """Return default and help of a field's value; any other value as it is."""
    if not isinstance(value, griffe.ExprCall):
        return value, ""
    given: dict[str, Any] = {
        a.name: a.value for a in value.arguments if isinstance(a, griffe.ExprKeyword)
    }
    if value.canonical_path == FIELD:
        metadata = given.get("metadata")
        texts = (
            dict(zip(map(str, metadata.keys), metadata.values, strict=True))
            if isinstance(metadata, griffe.ExprDict)
            else {}
        )
        if "default_factory" in given:
            return griffe.ExprCall(given["default_factory"], []), text_of(texts.get("'help'"))
        return given.get("default"), text_of(texts.get("'help'"))
    if value.canonical_path.rpartition(".")[2] == SETTING and len(value.arguments) == 2:
        default, text = (
            argument.value if isinstance(argument, griffe.ExprKeyword) else argument
            for argument in value.arguments
        )
        return default, text_of(text)
    return value, ""


def text_of(literal: Any) -> str:
    """Return what a literal of text says; "" for anything else."""
    try:
        return str(ast.literal_eval(str(literal))) if literal is not None else ""
    except ValueError:
        return ""
