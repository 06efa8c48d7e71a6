"""The reference page of the Python API, made from what is exported: signatures, docstrings, fields, errors.

`python -m tests.meta.python_reference > docs/reference/python.md` writes it; a test says when it is out of date.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import Any, Final

import latewood
import latewood.spark
from latewood.kernel.pure_record import Record
from tests.meta import public_api

_FRONT: Final = """\
# Python

This page is made by `python -m tests.meta.python_reference`: edit the docstrings, not the page. All names are in
`latewood`, but for some errors, which are in `latewood.errors`, and for what is [for Spark](#for-spark).

A record is *written* when an append returns: readers see it, and it survives the death of the process. It is *durable*,
safe from a power cut, where that is said: [durability](../guide/durability.md). Every error is a `LatewoodError`; what
to do about each: [operating](../guide/operating.md#when-an-error-says-). A payload that is not bytes-like is a
`TypeError`, as in all of Python.

`latewood.__version__` is the version of the package.
"""
_FUNCTIONS: Final = ("open", "connect", "connect_async")
_CLASSES: Final = (
    "Queue",
    "Reader",
    "LogOptions",
    "RetentionPolicy",
    "Record",
    "ReaderInfo",
    "LogStats",
    "LogIdentity",
    "Life",
    "Owner",
    "Mark",
    "Log",
    "Store",
    "Database",
    "DatabaseReader",
    "DatabaseOptions",
    "DatabaseRecord",
    "Client",
    "Partition",
    "PartitionReader",
    "ClientOptions",
    "PartitionInfo",
    "PartitionReaderInfo",
    "StatusReply",
    "NodeProgress",
    "Members",
    "AsyncClient",
    "AsyncPartition",
    "AsyncReader",
)
_RECORD: Final = {
    "sequence": "Its number in the log, which never changes.",
    "timestamp_ns": "When it was appended, in nanoseconds since 1970, or the time that the caller gave.",
    "ext_id": "The caller's own number; 0 if none was given.",
    "payload": "Its bytes.",
}
"""What the fields of a record mean; the kernel has two forms of it."""
_BASES: Final = {"Log"}
"""Classes whose members are described with the class that a caller gets."""
_INSIDE: Final = {
    "abandon_after_fork",
    "ask",
    "ask_any",
    "batcher",
    "begin",
    "buffered",
    "clock",
    "ends",
    "file_bytes_max",
    "file_system",
    "inheriting",
    "load_cursor",
    "make_durable",
    "page",
    "pause_s",
    "retention_plan",
    "site_of",
    "store_cursor",
    "stored",
    "stream",
    "view",
}
"""Members for the layers above, and for tests; on a log, also `wait`."""
_REPEATED: Final = {("Queue", "open")}
"""What `latewood.open` calls."""
_SPARK: Final = ("session", "prepare_environment", "table", "count")
_SPARK_JOBS: Final = ("flush", "compact", "retain", "verify", "rebuild_manifest", "rebuild_catalog")
_WIDTH: Final = 100


def reference() -> str:
    """Return the whole page."""
    lines = [_FRONT]
    for name in _FUNCTIONS:
        lines += _function(f"latewood.{name}", name, getattr(latewood, name), "##")
    for name in _CLASSES:
        lines += _class(name, Record if name == "Record" else getattr(latewood, name))
    lines += ["\n## For Spark\n\nOptions: [reading](../guide/spark.md), [writing](../guide/spark-sink.md).\n"]
    for name in _SPARK:
        lines += _function(f"latewood.spark.{name}", name, getattr(latewood.spark, name), "###")
    for name in _SPARK_JOBS:
        lines += _function(f"latewood.spark.jobs.{name}", name, getattr(latewood.spark.jobs, name), "###")
    lines += _errors()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def unexplained() -> set[str]:
    """Exported names that no section is about."""
    return set(latewood.__all__) - {*_FUNCTIONS, *_CLASSES, *_error_names()}


def _class(name: str, cls: type) -> Iterator[str]:
    yield f"\n## {name}\n"
    yield from _prose(cls)
    if name in _BASES:
        return
    if issubclass(cls, Enum):
        yield from _values(cls)
        return
    yield from _fields(cls)
    for member in sorted(_members(cls)):
        value: Any = inspect.getattr_static(cls, member)
        if isinstance(value, property):
            result = _plain(str(public_api._annotation(inspect.signature(value.fget).return_annotation)))  # type: ignore[arg-type]
            settable = "" if value.fset is None else ", which can be set"
            yield f"\n### {name}.{member}\n\n`{result}`{settable}\n"
            yield from _prose(value)
        elif callable(value) or (isinstance(value, classmethod) and (name, member) not in _REPEATED):
            yield from _function(f"{name}.{member}", member, getattr(cls, member), "###")


def _members(cls: type) -> Iterator[str]:
    for name in dir(cls):
        owner = next((base for base in cls.__mro__ if name in vars(base)), object)  # Enums list what they make up.
        hidden = name.startswith("_") or name in _INSIDE or (name == "wait" and owner is latewood.Log)
        if not hidden and owner.__module__.startswith("latewood."):
            yield name


def _function(title: str, name: str, function: Any, level: str) -> Iterator[str]:
    signature = _plain(public_api._function(name, function)).replace("(self, ", "(").replace("(self)", "()")
    yield f"\n{level} {title}\n"
    yield f"```text\n{_folded(signature)}\n```\n"
    yield from _prose(function)


def _folded(signature: str) -> str:
    """Break a long signature between its parameters."""
    if len(signature) <= _WIDTH:
        return signature
    head, _, rest = signature.partition("(")
    inside, _, result = rest.rpartition(")")
    parts = re.split(r", (?![^\[]*\])", inside)
    return f"{head}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def _plain(annotation: str) -> str:
    return annotation.replace("pa.", "pyarrow.")


def _prose(thing: Any) -> Iterator[str]:
    """Yield a docstring as Markdown: its paragraphs, then the errors as a list."""
    text, _, raised = (inspect.getdoc(thing) or "").partition("Raises:\n")
    yield text.strip().replace(".  ", ". ") + "\n"
    if raised:
        yield "Raises:\n"
        for item in re.split(r"\n(?=\S)", textwrap.dedent(raised).strip()):
            names, _, why = item.partition(":")
            yield f"- {', '.join(f'`{name.strip()}`' for name in names.split(','))}: {' '.join(why.split())}"
        yield ""


def _fields(cls: type) -> Iterator[str]:
    """Yield a table of what a value holds, from its source: the text below each field says what it means."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    rows = []
    for number, node in enumerate(body.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            if node.target.id == "id":  # Of an answer: its number on the way is nobody's business.
                continue
            after = body.body[number + 1] if number + 1 < len(body.body) else None
            kind = ast.unparse(node.annotation).replace("|", r"\|")
            meaning = _RECORD[node.target.id] if cls is Record else _text(after)
            rows.append(f"| `{node.target.id}` | `{kind}` | {_default(cls, node.target.id)} | {meaning} |")
    if rows:
        yield "\n".join(["| field | type | default | meaning |", "| --- | --- | --- | --- |", *rows, ""])


def _values(cls: type[Enum]) -> Iterator[str]:
    """Yield a table of an enumeration, from its source: the text below each value says what it means."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    yield "| value | meaning |\n| --- | --- |"
    for node, after in pairwise(body.body):
        if isinstance(node, ast.Assign):
            yield f"| `{ast.unparse(node.targets[0])}` | {_text(after)} |"
    yield ""


def _default(cls: type, name: str) -> str:
    field = getattr(cls, "__dataclass_fields__", {}).get(name)
    if field is None or "MISSING" in repr(field.default):
        return ""
    return f"`{field.default:,}`" if type(field.default) is not bool and field.default else f"`{field.default}`"


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""


def _error_names() -> list[str]:
    return [name for name in latewood.__all__ if _is_error(getattr(latewood, name))]


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, latewood.LatewoodError)


def _errors() -> Iterator[str]:
    """Yield every error, in the order of the tree, with what it carries."""
    yield "\n## Errors\n\n| error | is a kind of | carries | means |\n| --- | --- | --- | --- |"
    yield from _kinds(latewood.LatewoodError)


def _kinds(cls: type[latewood.LatewoodError]) -> Iterator[str]:
    ours = any("__init__" in vars(base) for base in cls.__mro__ if base.__module__.startswith("latewood."))
    carried = list(inspect.signature(cls).parameters) if ours else []
    base = cls.__base__.__name__ if cls.__base__ else ""
    means = " ".join((inspect.getdoc(cls) or "").split()).replace(".  ", ". ")
    yield f"| `{cls.__name__}` | `{base}` | {', '.join(f'`{name}`' for name in carried)} | {means} |"
    for child in cls.__subclasses__():
        if child.__module__ == "latewood.errors":
            yield from _kinds(child)


if __name__ == "__main__":
    sys.stdout.write(reference())
