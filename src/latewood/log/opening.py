"""Open a log to write: create it, or recover what a crash left."""

from latewood.errors import NotFoundError
from latewood.format.manifest import Manifest
from latewood.fs import File
from latewood.log.creation import begin_first_segment, create_log, is_unborn, sync_names
from latewood.log.identity import Claim, check_may_write, mend_identity
from latewood.log.manifest import ManifestStore
from latewood.log.options import LogOptions
from latewood.log.pointer import mend_pointer
from latewood.log.presence import no_segments
from latewood.log.recovery import read_last_footer, recover
from latewood.log.site import Site
from latewood.log.successor import check_no_newer_segment
from latewood.log.upgrade import settle
from latewood.log.wake import Wake
from latewood.log.writer import Writer


def open_writer(
    site: Site,
    options: LogOptions,
    store: ManifestStore,
    wake: Wake,
    claim: Claim,
    checkpoint: File | None,
    *,
    background: bool,
) -> tuple[Writer, LogOptions]:
    """Return a writer that goes on where the log ends, and its options.  The caller holds the lock.

    What `options` leave open is as it was: the header of the open segment says how.  `checkpoint` is what
    `lock_checkpoint` has returned; the writer closes it.

    Raises:
        Owned: the log is kept by a store or a node, and `claim` is not theirs.
        CorruptError: something that was durable is damaged.
        ManifestCorrupted: the manifest is not sound, or does not agree with the segments.
    """
    fs, layout, _ = site
    manifest = _begin(site, options, store, claim)
    previous = read_last_footer(fs, layout, manifest)
    recovered = recover(fs, layout, manifest, previous)
    try:
        options = options.inheriting(recovered.header.max_size, recovered.header.index_interval)
        writer = Writer(site, options, store, wake, checkpoint)
    except BaseException:
        recovered.file.close()
        raise
    try:
        manifest = settle(site, store, manifest, claim, recovered.header, previous)
        if recovered.footer:  # The roll that is still to be finished writes the pointer.
            writer.coordinator_watermark = recovered.footer.coordinator_watermark
        else:
            writer.coordinator_watermark = manifest.coordinator_watermark
            if previous:
                mend_pointer(fs, layout, previous)
        writer.start(manifest, recovered, background=background)
    except BaseException:
        recovered.file.close()
        writer.durability.close()
        raise
    return writer, options


def _begin(site: Site, options: LogOptions, store: ManifestStore, claim: Claim) -> Manifest:
    """Return the manifest, durable: of a log that is made now, or of the one that is there."""
    if store.is_unfinished_creation():
        return create_log(site, store, options, claim)
    manifest = store.load()
    check_may_write(site.layout, manifest.identity, claim.owner)
    check_no_newer_segment(site.fs, site.layout, manifest)
    store.secure()
    if manifest.identity is not None:  # Before anything else is written: it may be that of another log.
        mend_identity(site.fs, site.layout, manifest.identity)
    if is_unborn(site.fs, site.layout, manifest):
        begin_first_segment(site, manifest, options, site.clock.now_ns())
    try:
        sync_names(site, manifest)
    except NotFoundError as error:
        if site.fs.exists(site.layout.segments):
            raise
        raise no_segments(site.layout) from error
    return manifest
