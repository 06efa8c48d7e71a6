"""Give a log what its manifest lacks: an identity, cohorts and seals if it is of version 1, or its owner.

Happens once, when a log is opened to append, after recovery and before the first append.
Order of writes: docs/crash-safety.md, "upgrade".
"""

import logging

from latewood.errors import CorruptError, NotFoundError, UnsupportedVersion
from latewood.format.entries import EntryTable, SegmentEntry
from latewood.format.identity import Owner
from latewood.format.manifest import Manifest
from latewood.format.segment import SegmentFooter, SegmentHeader
from latewood.fs import File
from latewood.log.identity import Claim, born, store_identity
from latewood.log.manifest import ManifestStore
from latewood.log.pointer import load_pointer
from latewood.log.site import Site
from latewood.segment import read_footer, read_header

_logger = logging.getLogger(__name__)


def settle(
    site: Site,
    store: ManifestStore,
    manifest: Manifest,
    claim: Claim,
    header: SegmentHeader,
    previous: SegmentFooter | None,
) -> Manifest:
    """Return the manifest to go on with: of today's version, and its owner's.  Durable on return.

    `header` is that of the open segment, `previous` the footer of the latest sealed one.
    """
    if manifest.identity is None:
        return _upgraded(site, store, manifest, claim, _watermark(site, header, previous))
    if claim.owner is Owner.ANYBODY or claim.owner is manifest.identity.owner:
        return manifest
    identity = manifest.identity._replace(owner=claim.owner)
    return _stored(site, store, manifest._replace(identity=identity))


def _upgraded(site: Site, store: ManifestStore, manifest: Manifest, claim: Claim, watermark: int) -> Manifest:
    """Return a manifest of version 1 as one of today.

    The file `identity`, if there is one, is not believed: it may be of a log that was here before.
    """
    entries = EntryTable.empty(site.layout.root / "manifest")
    for index in range(len(manifest.entries)):
        entry = manifest.entries[index]
        entries = entries.append(_completed(site, entry))
    identity = born(claim, manifest.first_sequence)
    upgraded = _stored(
        site, store, manifest._replace(entries=entries, coordinator_watermark=watermark, identity=identity)
    )
    _logger.warning("%s was upgraded to format 2; older programs cannot open it any more", site.layout.root)
    return upgraded


def _stored(site: Site, store: ManifestStore, manifest: Manifest) -> Manifest:
    assert manifest.identity is not None
    store_identity(site.fs, site.layout, manifest.identity)
    manifest = manifest._replace(generation=manifest.generation + 1)
    store.store(manifest)
    return manifest


def _completed(site: Site, entry: SegmentEntry) -> SegmentEntry:
    """Return an entry with cohort and seal of its segment.

    They are 0 if it is damaged, which never kept a log from being opened.
    """
    path = site.layout.absolute(entry.path)
    try:
        file = site.fs.open(path)
    except NotFoundError:
        _logger.warning("%s is missing: `latewood verify` says more", path)
        return entry
    try:
        entry = entry._replace(ext_id=read_header(file).ext_id)
        return entry._replace(seal_checksum=_seal_checksum(file))
    except CorruptError as error:
        _logger.warning("%s", error)
        return entry
    finally:
        file.close()


def _seal_checksum(file: File) -> int:
    try:
        return read_footer(file).checksum
    except UnsupportedVersion as error:  # Or a damaged version: version 1 never looked at it here.
        _logger.warning("%s", error)
        return 0


def _watermark(site: Site, header: SegmentHeader, previous: SegmentFooter | None) -> int:
    """Return the watermark of the latest seal: only its footer, and then the sealed pointer, had it in version 1."""
    if previous:
        return previous.coordinator_watermark
    if pointer := load_pointer(site.fs, site.layout):  # Every sealed segment was retired, the one it names too.
        return pointer.coordinator_watermark
    if header.base_offset:  # There were records before this segment.
        _logger.warning(
            "%s is missing, and it alone had the coordinator watermark: that is 0 now, until it is set",
            site.layout.sealed_pointer,
        )
    return 0
