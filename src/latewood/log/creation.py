"""How a log, and each of its segments, comes into being.

Creation order: docs/crash-safety.md, "create".
"""

from contextlib import suppress
from pathlib import Path

from latewood.errors import NotFoundError, ReadOnlyError
from latewood.format.manifest import Manifest
from latewood.format.segment import FLAG_KEYED, SegmentFooter, SegmentHeader
from latewood.fs import File, FileSystem
from latewood.log.identity import Claim, born, store_identity
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore, first_manifest
from latewood.log.options import LogOptions
from latewood.log.site import Site
from latewood.log.successor import make_room
from latewood.segment import file_bytes, prepare, write_header


def begin_segment(fs: FileSystem, layout: Layout, file: File, header: SegmentHeader, path: str) -> File:
    """Give a prepared file its header, then its name, both durable.  If that fails, the file is closed."""
    target = layout.absolute(path)
    try:
        write_header(file, header)
        fs.make_directory(target.parent)
        make_room(fs, layout, target)
        fs.rename_new(file.path, target)
        sync_directories(fs, target.parent, layout.segments)
    except BaseException:
        file.close()
        raise
    file.path = target
    return file


def header_after(old: SegmentHeader, footer: SegmentFooter, ext_id: int, options: LogOptions) -> SegmentHeader:
    """Return the header of the segment that follows a sealed one."""
    return SegmentHeader(
        segment_index=old.segment_index + 1,
        base_offset=old.base_offset + footer.durable_bytes,
        base_record_count=footer.base_record_count + footer.record_count,
        max_size=options.file_bytes_max,
        flags=old.flags,
        created_at=footer.sealed_at,  # so that recovery can tell the path: see recovery.py
        ext_id=ext_id,
        index_interval=options.index_interval,
    )


def create_log(site: Site, store: ManifestStore, options: LogOptions, claim: Claim) -> Manifest:
    """Make an empty log: its manifest first, so that a segment never stands without one.

    It gets a new identity, also where a creation that was cut left one: nothing was ever said in that one's name.
    """
    created_ns = site.clock.now_ns()
    identity = born(claim, options.first_sequence)
    manifest = first_manifest(site.layout, created_ns, options.first_sequence, identity)
    with suppress(ReadOnlyError):  # Whoever made the log's directory may have been killed before it was durable.
        site.fs.sync_directory(site.layout.root.parent)
    store_identity(site.fs, site.layout, identity)  # Before the manifest, so that no log loses its name with that.
    store.store(manifest)
    begin_first_segment(site, manifest, options, created_ns)
    return manifest


def begin_first_segment(site: Site, manifest: Manifest, options: LogOptions, created_ns: int) -> None:
    """Make the segment that a first manifest names."""
    fs, layout, _ = site
    fs.make_directory(layout.segments)
    size = file_bytes(options.file_bytes_max, options.index_interval)
    file = prepare(fs, layout.next_segment, size, fill=options.fill)
    header = SegmentHeader(
        segment_index=0,
        base_offset=0,
        base_record_count=manifest.active_base,
        max_size=options.file_bytes_max,
        flags=FLAG_KEYED if options.keyed else 0,
        created_at=created_ns,
        ext_id=0,
        index_interval=options.index_interval,
    )
    begin_segment(fs, layout, file, header, manifest.active.path).close()


def sync_names(site: Site, manifest: Manifest) -> None:
    """Make the active segment's name durable, and forget a segment that was being prepared.

    A writer may have been killed after it made a name and before it synced the directory.
    """
    fs, layout, _ = site
    if fs.exists(layout.next_segment):
        fs.remove(layout.next_segment)
    sync_directories(fs, layout.absolute(manifest.active.path).parent, layout.segments)


def sync_directories(fs: FileSystem, lowest: Path, highest: Path) -> None:
    """Make names durable, those of the directories between too: whoever made one may have been killed at once."""
    directory = lowest
    while directory != highest:
        fs.sync_directory(directory)
        directory = directory.parent
    fs.sync_directory(highest)


def is_unborn(fs: FileSystem, layout: Layout, manifest: Manifest) -> bool:
    """Say whether a crash came between the first manifest and the first segment.

    A checkpoint is durable before the first append, so where one is, the segment has been there.
    """
    if not manifest.is_first or fs.exists(layout.absolute(manifest.active.path)):
        return False
    try:
        file = fs.open(layout.checkpoint)
    except NotFoundError:
        return True
    try:
        return file.size() == 0
    finally:
        file.close()
