"""The files in which a target remembers commits: `spark/intents/<query>.json` and `spark/commits/<query>.json`.

Files of `format/checked_json.py`.  Each is replaced as a whole, durably.  A damaged one is an error: to take it for a
missing one would append a batch twice.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from latewood.errors import NotFoundError
from latewood.format import checked_json
from latewood.fs import FileSystem, replace_file
from latewood.spark.commits_plan import CommitRecord, Intent

VERSION: Final = 2
"""2: which logs the records are in.  Files of version 1 do not say it, and are read."""
_OLDEST: Final = 1
_NAME: Final = re.compile(r"[0-9a-z][0-9a-z-]{0,63}")
_SUFFIX: Final = ".json"
S = TypeVar("S", bound=msgspec.Struct)


class CommitFiles:
    """Loads and stores them.  Whoever stores holds the target's lock."""

    def __init__(self, fs: FileSystem, state: Path) -> None:
        self._fs = fs
        self.lock: Final = state / "commit.lock"
        self.staging: Final = state / "staging"
        self._intents: Final = state / "intents"
        self._commits: Final = state / "commits"

    def prepare(self) -> None:
        """Make the directories, durably: whoever made one of them may have been killed before it was."""
        for directory in (self.staging, self._intents, self._commits):
            self._fs.make_directory(directory)
        self._fs.sync_directory(self.lock.parent.parent)
        self._fs.sync_directory(self.lock.parent)

    # -- intents ----------------------------------------------------------------------------------------------

    def intent(self, query: str) -> Intent | None:
        """Return the intent of a query, if it has one."""
        return self._load(self.intent_path(query), Intent)

    def intent_path(self, query: str) -> Path:
        """Return the file of an intent."""
        return self._intents / f"{query}{_SUFFIX}"

    def intents(self) -> Iterator[Intent]:
        """Yield every intent."""
        for name in self._fs.list(self._intents):
            if name.endswith(_SUFFIX) and (intent := self._load(self._intents / name, Intent)):
                yield intent

    def store_intent(self, intent: Intent) -> None:
        """Make an intent durable."""
        self._store(self.intent_path(intent.query), intent)

    def remove_intent(self, query: str) -> None:
        """Remove an intent.  If a power cut brings it back, its completion says that it is over."""
        self._remove(self.intent_path(query))

    # -- completions ------------------------------------------------------------------------------------------

    def record(self, query: str) -> CommitRecord | None:
        """Return what is known of a query."""
        return self._load(self.record_path(query), CommitRecord)

    def store_record(self, record: CommitRecord) -> None:
        """Make what is known of a query durable."""
        self._store(self.record_path(record.query), record)

    def record_path(self, query: str) -> Path:
        """Return the file of what is known of a query."""
        return self._commits / f"{query}{_SUFFIX}"

    def sync_records(self) -> None:
        """Make durable what was read of completions."""
        self._fs.sync_directory(self._commits)

    def txn_names(self) -> list[str]:
        """Return the queries that are txnIds."""
        names = [name.removesuffix(_SUFFIX) for name in self._fs.list(self._commits) if name.endswith(_SUFFIX)]
        return [name for name in names if name.startswith("txn-")]

    def remove_record(self, query: str) -> None:
        """Forget a query."""
        self._remove(self.record_path(query))

    def begin_anew(self, query: str) -> None:
        """Forget a query, durably: first what was under way, then what was done."""
        self.remove_intent(query)
        self._fs.sync_directory(self._intents)
        self.remove_record(query)
        self._fs.sync_directory(self._commits)

    # -- staged files -----------------------------------------------------------------------------------------

    def staged(self) -> list[str]:
        """Return the names of all staged files."""
        return self._fs.list(self.staging)

    def remove_staged(self, names: list[str]) -> None:
        """Remove staged files, those that are still there."""
        for name in names:
            self._remove(self.staging / name)

    def _remove(self, path: Path) -> None:
        with suppress(NotFoundError):
            self._fs.remove(path)

    def _store(self, path: Path, body: msgspec.Struct) -> None:
        replace_file(self._fs, path, checked_json.encode(VERSION, body))

    def _load(self, path: Path, kind: type[S]) -> S | None:
        try:
            file = self._fs.open(path)
        except NotFoundError:
            return None
        try:
            raw = file.pread(file.size(), 0)
        finally:
            file.close()
        return checked_json.decode(raw, kind, VERSION, "what is known of a commit", path, oldest=_OLDEST)


def stream_query(query_id: str) -> str:
    """Return the name under which a streaming query is known: its id, if that can be a file name."""
    return query_id if _NAME.fullmatch(query_id) and not query_id.startswith("txn-") else _digest("query", query_id)


def txn_query(txn_id: str) -> str:
    """Return the name under which a txnId is known."""
    return _digest("txn", txn_id)


def _digest(prefix: str, text: str) -> str:
    return f"{prefix}-{hashlib.sha256(text.encode()).hexdigest()[:40]}"
