"""What a forked child does with an LMDB environment of its parent: it keeps it, untouched, and opens the file anew.

Closing it there, or ending one of its transactions, would free slots in the table of readers under transactions of the
parent.  It would also wait for threads that the child does not have.  And POSIX drops all locks that a process has on a
file as soon as it closes any descriptor of it: once the child has opened the file itself, the inherited descriptor must
stay open.  So an inherited environment is never finalised, not even when the interpreter ends.

py-lmdb refuses to open a file twice in one process, and knows files by what `lmdb._envid.env_keys` says.  In the
child the files of an inherited environment get keys of a new life, so that they can be opened again: once.
"""

from typing import Any, Final

from lmdb import _envid

from latewood.forking import keep_for_ever

_keys_of: Final = _envid.env_keys
_lives: Final[dict[Any, int]] = {}
"""py-lmdb's key of each file that this process inherited open, and how often it was forked with it.  A mutable global,
because what py-lmdb has open is one, too.  Empty, and `lmdb` as it was, in a process that inherited nothing."""


def let_go(environment: Any, path: str) -> None:
    """Give up an inherited environment, whose file was given as `path`; None if it was just being opened."""
    if environment is not None:
        keep_for_ever(environment)
    for key in _keys_of(path, subdir=False):
        _lives[key] = _lives.get(key, 0) + 1
    _envid.env_keys = _keys_in_this_life


def _keys_in_this_life(path: Any, subdir: Any) -> tuple[Any, ...]:
    return tuple((*key, _lives[key]) if key in _lives else key for key in _keys_of(path, subdir))
