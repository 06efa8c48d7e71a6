"""Where a log lives."""

from typing import NamedTuple

from latewood.clock import Clock
from latewood.fs import FileSystem
from latewood.log.layout import Layout


class Site(NamedTuple):
    """The collaborators that every part of a log shares."""

    fs: FileSystem
    layout: Layout
    clock: Clock
