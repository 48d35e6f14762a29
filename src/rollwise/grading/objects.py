"""Values that a problem's tests and a response's program exchange, each in a sandbox of its own.

Plain data are sent as copies, all else as a handle: a number by which the other side calls an
object, reads its attributes, or uses its operators. Only JSON is sent. The side of the tests trusts
nothing:

- It compares plain data itself. It never asks an object that the program returned how it compares
  with them, which would let that object judge itself.
- The program may call functions that the tests hand to it, and use objects of the tests' own
  classes by public names. It cannot set a class's attributes, nor reach modules or frames.
"""

import builtins
import contextlib
import functools
import importlib
import io
import sys
import types
from typing import Any

from rollwise.grading.mirrors import (
    COMPARING,
    HANDLES,
    SPECIAL,
    Handle,
    Mirror,
    MirrorType,
    Unsupported,
    handle_of,
    special,
    specials,
)
from rollwise.grading.plain_data import CONTAINERS, VALUES, change, decode, encode, plain_value

_DESCRIBING = {"__name__", "__qualname__", "__doc__", "__module__"}
_CONSTANTS = ("Ellipsis", "NotImplemented")

_MOST_PRINTED = 64 * 1024
"""Bytes of what a program prints during a call that the tests may read."""

TESTS = ("__main__", "tests")
"""The modules in which tests define their own classes."""


class Peer:
    """One of the two sides: it sends requests to the other one, and serves those that come.

    Args:
        channel: The way to the other side (`program.Channel`).
        namespace: The names of the program, on its side; None on the side of the tests.
    """

    def __init__(self, channel: Any, namespace: dict[str, Any] | None = None) -> None:
        self._channel, self._namespace = channel, namespace or {}
        self.is_trusted = namespace is None
        self._lent: list[Any] = []
        self._numbers: dict[int, int] = {}  # by id
        self._usable: set[int] = set()
        self._known: dict[int, Any] = {}
        self.constructors: set[int] = set()
        self.is_used = False
        self.printed = io.BytesIO()

    def find(self, names: list[str]) -> dict[str, Any]:
        """Return the objects of the program that have these names, if there are any."""
        said = self.ask("find", None, names)
        found = {name: said[name] for name in names if name in said}  # no built-in function
        for name, value in found.items():
            if isinstance(value, MirrorType) and name.lstrip("_")[:1].isupper():
                self.constructors.add(HANDLES[id(value)].number)
        self.is_used = False
        return found

    def ask(self, action: str, number: int | None, *args: Any, **kwargs: Any) -> Any:
        """Have the other side do something with its object of this number; return the result.

        Arguments that it changed in place are changed here too. An error there is raised here.
        """
        self.is_used = True
        given, named = [*map(self.encode, args)], {k: self.encode(v) for k, v in kwargs.items()}
        self._channel.write({"do": action, "on": number, "args": given, "kwargs": named})
        while "do" in (message := self._channel.read()):
            self._channel.write(self._answer(message))
        sys.stdout.write(str(message.get("printed", "")))
        changed = map(self.decode, message.get("changed", []))
        for old, new in zip([*args, *kwargs.values()], changed, strict=False):
            change(old, new)
        if "error" in message:
            raise self._error(args[:1] == ("__next__",), *message["error"])
        return self.decode(message["value"])

    def serve(self) -> None:
        """Do what the other side asks for, for as long as it does."""
        while True:
            self._channel.write(self._answer(self._channel.read()))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            args = [self.decode(arg) for arg in request["args"]]
            kwargs = {name: self.decode(arg) for name, arg in request["kwargs"].items()}
            given = [*args, *kwargs.values()]
            value = self._do(request["do"], request["on"], args, kwargs)
            answer = {"value": self.encode(value)}
            if any(isinstance(arg, CONTAINERS) for arg in given):
                after = [*map(self.encode, given)]
                changed = after != [*request["args"], *request["kwargs"].values()]
                answer |= {"changed": after} if changed else {}
        except BaseException as error:
            kind, number, sent = self._class(type(error)), self._lend(error), ["list", []]
            with contextlib.suppress(Exception):
                sent = self.encode(list(error.args))
            answer = {"error": [type(error).__name__, kind, number, sent]}
        if printed := self.printed.getvalue():
            self.printed.seek(0)
            self.printed.truncate()
            answer["printed"] = printed[:_MOST_PRINTED].decode("utf-8", "replace")
        return answer

    def _do(self, action: str, number: int | None, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not self.is_trusted and action == "find":
            return {name: self._namespace[name] for name in args[0] if name in self._namespace}
        if not self.is_trusted and action == "entry":
            return self._entry(args[0])(*args[1:], **kwargs)
        target = self._lent[number or 0]
        if action == "class":
            return self._describe(target)
        if not self.is_trusted and action == "await":
            return importlib.import_module("asyncio").run(target)
        if not self.is_trusted and action == "copy":
            base: Any = next(base for base in CONTAINERS if isinstance(target, base))
            return base(dict.items(target) if base is dict else base.__iter__(target))
        name, *rest = args
        if self.is_trusted:
            check_allowed(target if number in self._usable else None, action, name)
        if action == "special":
            return getattr(type(target), name)(target, *rest, **kwargs)
        acts: dict[str, Any] = {"get": getattr, "set": setattr, "delete": delattr}
        return acts[action](target, name, *rest)

    def _entry(self, name: str) -> Any:
        """Return a function of the program, or the method of that name of its class `Solution`."""
        solution: Any = self._namespace.get("Solution")
        return getattr(solution(), name) if hasattr(solution, name) else self._namespace[name]

    def encode(self, value: Any) -> Any:
        """Turn a value into JSON."""
        return encode(value, self._encode_object)

    def _encode_object(self, value: Any) -> Any:
        kind = type(value)
        if handle := handle_of(value):
            return ["yours", handle.number]
        if value is NotImplemented or value is Ellipsis:
            return ["builtin", repr(value)]
        if isinstance(value, type):
            self._lend(value, usable=True)
            return self._class(value)
        name = getattr(value, "__name__", None)
        if self.is_trusted and isinstance(name, str) and vars(builtins).get(name) is value:
            return ["builtin", name]
        if not self.is_trusted and isinstance(value, types.CoroutineType):
            return ["coroutine", self._lend(value)]
        if self.is_trusted and not is_lendable(value):
            raise Unsupported(f"the tests hand a {kind.__name__} to the program")
        base = next((base for base in VALUES if isinstance(value, base)), None)
        plain = None if base is None else self.encode(plain_value(value, base))
        return ["handle", self._lend(value, usable=True), ["class", self._lend(kind)], plain]

    def _lend(self, value: Any, usable: bool = False) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._lent)
            self._lent.append(value)
        number = self._numbers[id(value)]
        if usable:
            self._usable.add(number)
        return number

    def _class(self, kind: type) -> Any:
        if vars(builtins).get(kind.__name__) is kind:
            return ["builtin", kind.__name__]
        if handle := handle_of(kind):
            return ["yours", handle.number]
        if issubclass(kind, Exception) and _importable(kind.__module__):
            return ["error", kind.__module__, kind.__qualname__]
        return ["class", self._lend(kind)]

    def _describe(self, kind: type) -> list[Any]:
        """Return a class's name, bases and special methods, and its metaclass's; see `_make`."""
        bases = [self._class(base) for base in kind.__bases__]
        native = next(b for b in kind.__mro__ if b in (*VALUES, object) or is_native_error(b))
        of_metaclass = [] if type(kind) is type else specials(type(kind), type)
        own, is_container = specials(kind, native), issubclass(kind, CONTAINERS)
        return [kind.__name__, bases, own, of_metaclass, is_container]

    def decode(self, data: Any) -> Any:
        """Turn JSON that the other side sent into a value, or raise an error of any kind."""
        return decode(data, self._decode_object)

    def _decode_object(self, data: list[Any]) -> Any:
        tag, *rest = data
        if tag == "yours":
            if self.is_trusted and rest[0] not in self._usable:
                raise ValueError("it was not lent")
            return self._lent[rest[0]]
        if tag == "coroutine":
            return self._awaited(*rest)
        if tag == "handle":
            return self._mirror(*rest)
        if tag in ("class", "error"):
            return self._mirror_class(data)
        if tag == "builtin":
            found = getattr(builtins, rest[0])
            if self.is_trusted and not isinstance(found, type) and rest[0] not in _CONSTANTS:
                raise ValueError("functions are not sent by name")
            return found
        raise ValueError(f"unknown kind of data {tag!r}")

    async def _awaited(self, number: int) -> Any:
        return self.ask("await", number)

    def _mirror(self, number: int, kind: Any, plain: Any) -> Any:
        if number not in self._known:
            cls: Any = self._mirror_class(kind)
            if not isinstance(cls, MirrorType):
                raise ValueError("an object of the other side has no class of that side")
            base = next((base for base in VALUES if issubclass(cls, base)), None)
            args = () if base is None else (self.decode(plain),)
            self._known[number] = (base or object).__new__(cls, *args)  # type: ignore[arg-type]
        # What a program returns is not what the tests constructed, though it be the same object.
        self._remember(number, self._known[number])
        return self._known[number]

    def _remember(self, number: int, value: Any) -> None:
        self._known[number] = value
        HANDLES[id(value)] = Handle(self, number)

    def _mirror_class(self, data: Any) -> Any:
        """Return the class here that stands for one of the other side."""
        tag, *rest = data
        if tag == "error":
            kind: Any = functools.reduce(getattr, rest[1].split("."), sys.modules.get(rest[0]))
            if not _importable(rest[0]) or not issubclass(kind, Exception):
                raise ValueError("no such error")
            return kind
        if tag == "yours" and isinstance(self._lent[rest[0]], type):
            return self._lent[rest[0]]
        if tag != "class":
            return self.decode(data)
        (number,) = rest
        if number not in self._known:
            self._remember(number, self._make(*self.ask("class", number)))
        return self._known[number]

    def _make(
        self, name: str, refs: Any, own: list[str], of_metaclass: list[str], is_container: bool
    ) -> type:
        bases = [self._mirror_class(ref) for ref in refs]
        mirrors = [base for base in bases if isinstance(base, MirrorType)] or [Mirror]
        natives = [base for base in bases if base in VALUES or is_native_error(base)]
        native = next((v for v in VALUES if any(issubclass(base, v) for base in bases)), None)
        names = {*own, *COMPARING} if is_container else own
        members = {n: special(n, native, is_container) for n in names if n in SPECIAL}
        forwarded = {n: special(n) for n in of_metaclass if n in SPECIAL - {"__call__"}}
        metaclass = type(name, tuple(dict.fromkeys(map(type, mirrors))), forwarded)
        made: type = metaclass(name, (*mirrors, *natives), members)
        return made

    def _error(self, is_next: bool, name: str, kind: Any, number: int, args: Any) -> BaseException:
        """Return the error here that stands for one that was raised there."""
        cls = self._mirror_class(kind)
        ends_iteration = issubclass(cls, StopIteration | StopAsyncIteration) and not is_next
        if ends_iteration or not issubclass(cls, Exception | SystemExit):
            return RuntimeError(f"the program raised {name}")  # or `all(map(f, ...))` would end
        if number not in self._known:
            given = self.decode(args)
            self._remember(number, cls.__new__(cls, *given))
            with contextlib.suppress(TypeError):  # sets `code`, `errno` and such
                next(filter(is_native_error, cls.__mro__)).__init__(self._known[number], *given)
        error: BaseException = self._known[number]
        return error


def is_lendable(value: Any) -> bool:
    """Whether tests may hand an object to a program: it leads nowhere else."""
    if _is_test_case(type(value)):
        return False
    is_own = type(value).__module__ in TESTS
    return is_own or callable(value) or isinstance(value, io.IOBase) or hasattr(value, "__next__")


def check_allowed(target: Any, action: str, name: str) -> None:
    """Raise an AttributeError unless a program may do this with an object of the tests."""
    kind = target if isinstance(target, type) else type(target)
    is_own = kind.__module__ in TESTS and not _is_test_case(kind)
    is_open = is_own or isinstance(target, io.IOBase)
    if action == "special":
        iterates = name in ("__iter__", "__next__") and hasattr(target, "__next__")
        allowed = name == "__call__" or iterates or (is_open and name in SPECIAL)
    elif action == "get":
        allowed = name in _DESCRIBING or (is_open and not name.startswith("_"))
    else:
        allowed = action == "set" and is_own and kind is not target and not name.startswith("_")
        allowed &= not callable(getattr(kind, name, None))
    if target is None or not allowed:
        raise AttributeError(f"a program may not use {name!r} of the tests' {kind.__name__}")


def _importable(module: str) -> bool:
    """Whether errors of a module are known to both sides by their names."""
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names - {"unittest"} and module in sys.modules


def _is_test_case(kind: type) -> bool:
    return any(base.__module__.startswith("unittest") for base in kind.__mro__)


def is_native_error(kind: type) -> bool:
    """Whether a class is one of the built-in errors."""
    return issubclass(kind, BaseException) and kind.__module__ == "builtins"
