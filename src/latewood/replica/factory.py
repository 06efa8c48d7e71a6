"""A user's machines by name: `package.module:factory`, imported when a node starts, and checked."""

import importlib
import re
from collections.abc import Callable
from typing import Any, Final

from latewood.errors import UsageError
from latewood.replica.machine import MachineFactory, PartitionStateMachine

_PATH: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_METHODS: Final = ("apply", "snapshot", "restore")


def check_path(path: str) -> None:
    """Check that a path can be one, without importing anything.

    Raises:
        UsageError: it cannot.
    """
    if not _PATH.fullmatch(path):
        message = f'machine is "package.module:factory", not "{path}"'
        raise UsageError(message)


def load_factory(path: str) -> MachineFactory:
    """Import what makes machines, and have every machine that it makes checked.

    Raises:
        UsageError: it cannot be imported, or is nothing that makes machines; the text says why.
    """
    check_path(path)
    module_name, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        message = f'machine "{path}": {module_name} cannot be imported: {type(error).__name__}: {error}'
        raise UsageError(message) from error
    for name in names.split("."):
        if not hasattr(found, name):
            message = f'machine "{path}": {module_name} has no {names}'
            raise UsageError(message)
        found = getattr(found, name)
    if not callable(found):
        message = f'machine "{path}" is a {type(found).__name__}; it must be callable with the number of a partition'
        raise UsageError(message)
    _check(path, _made(path, found, 0))
    return _checked(path, found)


def _checked(path: str, make: Callable[[int], Any]) -> MachineFactory:
    def factory(partition_id: int) -> PartitionStateMachine:
        return _check(path, _made(path, make, partition_id))

    return factory


def _made(path: str, make: Callable[[int], Any], partition_id: int) -> Any:
    try:
        return make(partition_id)
    except Exception as error:
        message = f'machine "{path}" makes none of partition {partition_id}: {type(error).__name__}: {error}'
        raise UsageError(message) from error


def _check(path: str, made: Any) -> PartitionStateMachine:
    missing = [name for name in _METHODS if not callable(getattr(made, name, None))]
    if not isinstance(getattr(made, "log_is_state", None), bool):
        missing.append("log_is_state, True or False")
    if missing:
        message = f'machine "{path}" makes a {type(made).__name__}, which has no {", no ".join(missing)}'
        raise UsageError(message)
    machine: PartitionStateMachine = made
    return machine
