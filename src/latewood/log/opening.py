"""Open a log to write: create it, or recover what a crash left."""

from latewood.log.creation import begin_first_segment, create_log, is_unborn, sync_names
from latewood.log.manifest import ManifestStore
from latewood.log.options import LogOptions
from latewood.log.pointer import load_pointer, mend_pointer
from latewood.log.recovery import read_last_footer, recover
from latewood.log.site import Site
from latewood.log.successor import check_no_newer_segment
from latewood.log.wake import Wake
from latewood.log.writer import Writer


def open_writer(
    site: Site, options: LogOptions, store: ManifestStore, wake: Wake, *, background: bool
) -> tuple[Writer, LogOptions]:
    """Return a writer that goes on where the log ends, and its options.  The caller holds the lock.

    What `options` leave open is as it was: the header of the open segment says how.

    Raises:
        CorruptError: something that was durable is damaged.
        ManifestCorrupted: the manifest is not sound, or does not agree with the segments.
    """
    fs, layout, clock = site
    if store.is_unfinished_creation():
        manifest = create_log(site, store, options)
    else:
        manifest = store.load_to_write()
        check_no_newer_segment(fs, layout, manifest)
        if is_unborn(fs, layout, manifest):
            begin_first_segment(site, manifest, options, clock.now_ns())
        sync_names(site, manifest)
    previous = read_last_footer(fs, layout, manifest)
    recovered = recover(fs, layout, manifest, previous)
    try:
        options = options.inheriting(recovered.header.max_size, recovered.header.index_interval)
        writer = Writer(site, options, store, wake)
    except BaseException:
        recovered.file.close()
        raise
    try:
        if recovered.footer:  # The roll that is still to be finished writes the pointer.
            writer.coordinator_watermark = recovered.footer.coordinator_watermark
        elif previous:
            writer.coordinator_watermark = mend_pointer(fs, layout, previous).coordinator_watermark
        elif pointer := load_pointer(fs, layout):  # Every sealed segment was retired, the one it names too.
            writer.coordinator_watermark = pointer.coordinator_watermark
        writer.start(manifest, recovered, background=background)
    except BaseException:
        recovered.file.close()
        writer.durability.close()
        raise
    return writer, options
