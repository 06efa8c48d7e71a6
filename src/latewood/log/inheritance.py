"""What a log remembers of its options: the header of the open segment holds those that shape its files."""

from latewood.errors import NotFoundError
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore
from latewood.segment import read_header


def inherited_options(fs: FileSystem, layout: Layout) -> dict[str, int]:
    """Return the fields of LogOptions that the open segment was made with; none if there is no log yet.

    Raises:
        CorruptError: manifest or header is damaged.
        UnsupportedVersion: a later program wrote them.
    """
    store = ManifestStore(fs, layout)
    if not fs.exists(layout.root) or store.is_unfinished_creation():
        return {}
    try:
        file = fs.open(layout.absolute(store.load_while_written().active.path))
    except NotFoundError:  # A crash came before the first segment, or opening the log will say what is wrong.
        return {}
    try:
        header = read_header(file)
    finally:
        file.close()
    return {"segment_bytes_max": header.max_size, "index_interval": header.index_interval}
