"""Objects here that stand for objects of the other side; see `objects.py`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from rollwise.grading.plain_data import CONTAINERS


def _names(words: str) -> set[str]:
    return {f"__{word}__" for word in words.split()}


COMPARING = _names("eq ne lt le gt ge")
_OPERATORS = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"
_ARITHMETIC = _names(" ".join(f"{name} r{name} i{name}" for name in _OPERATORS.split()))
_BINARY = {*COMPARING, *_ARITHMETIC, "__contains__"}
SPECIAL = _BINARY | _names(
    "call iter next reversed len bool getitem setitem delitem enter exit str repr hash int float "
    "complex index abs neg pos invert round trunc floor ceil format bytes"
)
"""The special methods that objects of the other side can have."""


class Unsupported(Exception):
    """Tests need what cannot be had between two sandboxes; says what."""


class Handle(NamedTuple):
    """What an object here stands for: one of the other side, by its number there.

    It is constructed if the tests called a class by a name in capitals, as in `Vector(1, 2)`: then
    they mean an object of the program, and its operators are what they test.
    """

    peer: Any
    number: int
    is_constructed: bool = False

    def ask(self, action: str, *args: Any, **kwargs: Any) -> Any:
        """Have the other side do something with its object."""
        return self.peer.ask(action, self.number, *args, **kwargs)


HANDLES: dict[int, Handle] = {}  # by id, of objects that are kept


def handle_of(value: Any) -> Handle | None:
    """Return what an object stands for, if it is of the other side."""
    return HANDLES.get(id(value))


def special(
    name: str, native: type | None = None, is_container: bool = False
) -> Callable[..., Any]:
    """Return a special method of objects of the other side.

    With plain data, operators that decide a test are those of `native`, a built-in base.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        handle = handle_of(self)
        if handle is None:
            raise Unsupported("the tests derive a class from one of the program's")
        is_judged = handle.peer.is_trusted and name in _BINARY and handle_of(args[0]) is None
        if not is_judged or (handle.is_constructed and name not in COMPARING):
            result = handle.ask("special", name, *args, **kwargs)
            is_like = handle.is_constructed and name in _ARITHMETIC and type(result) is type(self)
            return _constructed(result) if is_like else result
        if native is not None:
            return getattr(native, name)(self, *args)
        if name == "__contains__":
            return any(item is args[0] or item == args[0] for item in self)
        if is_container and name in COMPARING:
            copy = handle.ask("copy")
            return getattr(copy, name)(*args) if type(copy) in CONTAINERS else NotImplemented
        if handle.is_constructed and args[0] is not None:
            kind = type(self).__name__
            raise Unsupported(f"the tests compare a {kind} of the program with plain data")
        return NotImplemented

    return method


def _constructed(value: Any) -> Any:
    HANDLES[id(value)] = HANDLES[id(value)]._replace(is_constructed=True)
    return value


def _get(mirror: Any, name: str) -> Any:
    if (handle := handle_of(mirror)) is None:
        raise AttributeError(name)
    if name == "__dataclass_fields__":
        raise Unsupported("the tests take a dataclass of the program apart")
    return handle.ask("get", name)


def _set(mirror: Any, name: str, value: Any) -> None:
    if (handle := handle_of(mirror)) is None or name.startswith("__"):
        (type if isinstance(mirror, type) else object).__setattr__(mirror, name, value)
    else:
        handle.ask("set", name, value)


class MirrorType(type):
    """A class that stands for one of the other side."""

    __getattr__, __setattr__ = _get, _set

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        handle = handle_of(cls)
        if handle is None:
            raise Unsupported("the tests derive a class from one of the program's")
        made = handle.ask("special", "__call__", *args, **kwargs)
        is_new = handle.number in handle.peer.constructors and type(made) is cls
        return _constructed(made) if is_new else made


class Mirror(metaclass=MirrorType):
    """An object that stands for one of the other side."""

    __getattr__, __setattr__ = _get, _set
    __dict__ = property(lambda self: _get(self, "__dict__"))

    def __delattr__(self, name: str) -> None:
        if handle := handle_of(self):
            handle.ask("delete", name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Unsupported("the tests copy an object of the program")


def specials(kind: type, base: type) -> list[str]:
    """List the special methods in which a class differs from a base of it."""
    return [
        name
        for name in sorted(SPECIAL)
        if (found := getattr(kind, name, None)) and found is not getattr(base, name, None)
    ]
