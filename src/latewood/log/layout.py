"""Every path and file name of a log, both ways."""

import re
from pathlib import Path
from time import gmtime, strftime
from typing import Final, NamedTuple

NANOSECONDS: Final = 1_000_000_000
_SEGMENT_NAME: Final = re.compile(r"([0-9]{9,10})\.q")


class Layout(NamedTuple):
    """Where the files of the log at `root` are."""

    root: Path

    @property
    def segments(self) -> Path:
        """The directory of all segments."""
        return self.root / "segments"

    @property
    def next_segment(self) -> Path:
        """The segment that is being prepared, of no day and no number yet."""
        return self.segments / "next.q"

    @property
    def sealed_pointer(self) -> Path:
        """`current.sealed`."""
        return self.segments / "current.sealed"

    @property
    def checkpoint(self) -> Path:
        """`index.meta`."""
        return self.root / "index.meta"

    @property
    def identity(self) -> Path:
        """The second copy of the log's identity."""
        return self.root / "identity"

    @property
    def lock(self) -> Path:
        """The writer's lock."""
        return self.root / "writer.lock"

    @property
    def wake(self) -> Path:
        """The shared words on which readers sleep."""
        return self.root / "wake"

    @property
    def readers(self) -> Path:
        """The directory of named readers."""
        return self.root / "readers"

    def absolute(self, relative: str) -> Path:
        """Return the file that a path in the manifest names."""
        return self.root / relative

    def relative(self, path: Path) -> str:
        """Return a segment's path as the manifest stores it."""
        return path.relative_to(self.root).as_posix()


def segment_path(segment_id: int, created_ns: int) -> str:
    """Return a segment's path relative to its log: its day of creation in UTC, then its id."""
    day = strftime("%Y/%m/%d", gmtime(created_ns // NANOSECONDS))
    return f"segments/{day}/{segment_name(segment_id)}"


def segment_name(segment_id: int) -> str:
    """Return the name of a segment's file."""
    return f"{segment_id:09}.q"


def segment_id_of(path: Path) -> int | None:
    """Return the id in a segment's file name, or None if it is not one."""
    match = _SEGMENT_NAME.fullmatch(path.name)
    return int(match[1]) if match else None
