"""The public API as text: one line for each exported name and for each public member of an exported class.

The text is the same on each kernel and each version of Python: a type is written by its name, without the module where
it happens to be.

`python -m tests.meta.public_api` prints it; `make api` keeps it in public_api.txt.
"""

import enum
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

import latewood

_TWINS: Final = ("latewood._native", "latewood.kernel.")
_WORDS: Final = {None: "None", types.NoneType: "None", Ellipsis: "..."}
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


def describe(module: ModuleType) -> str:
    """Everything that a module exports, sorted."""
    package = module.__name__.partition(".")[0]
    lines = [line for name in sorted(module.__all__) for line in _describe_name(name, getattr(module, name), package)]
    return _ADDRESS.sub("", "".join(f"{line}\n" for line in lines))


def _describe_name(name: str, value: Any, package: str) -> Iterator[str]:
    if isinstance(value, type) and value.__module__.startswith(_TWINS):
        yield from _describe_twin(name, value)
    elif isinstance(value, type):
        yield from _describe_class(name, value, package)
    elif inspect.isroutine(value):
        yield _function(name, value)
    else:
        yield f"{name}: {type(value).__name__}"


def _describe_twin(name: str, cls: type) -> Iterator[str]:
    """A class of the kernel: the names that its native and its pure form have in common, which run the same tests."""
    yield f"class {name}"
    yield from (f"    {member}" for member in sorted(dir(cls)) if not member.startswith("_"))


def _describe_class(name: str, cls: type, package: str) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield f"class {name}({bases})" if bases else f"class {name}"
    if issubclass(cls, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in cls)
    elif _is_ours(cls.__init__, package) or issubclass(cls, tuple):
        yield f"    {_function('new', cls)}"
    for member in sorted(dir(cls)):
        if not member.startswith("_") and (line := _describe_member(cls, member, package)):
            yield f"    {line}"


def _describe_member(cls: type, name: str, package: str) -> str | None:
    """One line for a member that a class of ours defines, none for what comes from `object` or `Exception`."""
    owner = next(base for base in cls.__mro__ if name in vars(base))
    value = vars(owner)[name]
    if owner.__module__.partition(".")[0] != package or isinstance(value, enum.Enum):
        return None
    if isinstance(value, classmethod | staticmethod):
        return f"{type(value).__name__} {_function(name, value.__func__)}"
    if inspect.isroutine(value) and not inspect.isdatadescriptor(value):
        return _function(name, value)
    getter = getattr(value, "fget", None) or getattr(value, "func", None)
    kind = inspect.signature(getter).return_annotation if getter else inspect.get_annotations(owner).get(name)
    return f"{name}: {_annotation(type(value) if kind is None else kind)}"


def _function(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    word = "async def" if inspect.iscoroutinefunction(function) else "def"
    result = "" if signature.return_annotation is inspect.Signature.empty else _annotation(signature.return_annotation)
    bare = signature.replace(
        parameters=[_bare(parameter) for parameter in signature.parameters.values()],
        return_annotation=inspect.Signature.empty,
    )
    return f"{word} {name}{bare}" + (f" -> {result}" if result else "")


def _bare(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter with its annotation in a form that prints without quotes."""
    if parameter.annotation is inspect.Parameter.empty:
        return parameter
    return parameter.replace(annotation=_Text(_annotation(parameter.annotation)))


def _annotation(annotation: Any) -> str:
    """An annotation as one would write it."""
    if isinstance(annotation, list):  # The arguments of a callable.
        return f"[{', '.join(map(_annotation, annotation))}]"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    parts = map(repr if origin is typing.Literal else _annotation, arguments)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(parts)
    return _name(annotation) if origin is None else f"{_name(origin)}[{', '.join(parts)}]"


def _name(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return _WORDS.get(annotation) or getattr(annotation, "__qualname__", None) or repr(annotation).lstrip("~")


def _is_ours(function: Any, package: str) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == package


class _Text(str):
    """A string whose repr is itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


if __name__ == "__main__":
    sys.stdout.write(describe(latewood))
