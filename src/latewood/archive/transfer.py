"""Chunks on their way between the disk and a tier.  Each step can be repeated, and none is trusted before it is proved.

upload:   `checked` the file is what it should be · `put` the tier has taken it · `verified` it was read back whole
hydrate:  `downloaded` under a name that nobody reads, and proved · then as every new file: `written`, `synced`,
          `renamed`, `durable`; or at once `present`, if it is there already
evict:    `confirmed` the tier still has it · `removed` · `durable`

A cut after any step loses nothing: the same call again ends where an uncut one would have.
"""

import secrets
from pathlib import Path
from typing import Final, NamedTuple

from latewood.archive.names import TOKEN_BYTES, RandomBytes
from latewood.archive.sink import FILE_STEPS, FileSink, Hook, no_hook
from latewood.archive.source import Digest, FileSource, digest_of, pieces
from latewood.archive.tier import ObjectInfo, Tier, TierSource, confirm_object, verify_object
from latewood.errors import ConflictError, CorruptError, NotFoundError, UsageError
from latewood.fs import FileSystem

UPLOAD_STEPS: Final = ("checked", "put", "verified")
HYDRATE_STEPS: Final = ("downloaded", *FILE_STEPS)
EVICT_STEPS: Final = ("confirmed", "removed", "durable")


class RemoteCopy(NamedTuple):
    """An object that was read back: proof that a tier holds these bytes."""

    tier: str
    """The tier's name."""
    info: ObjectInfo
    digest: Digest
    verified: bool
    """Whether all of it was read back and matched."""


def upload(fs: FileSystem, path: Path, tier: Tier, key: str, digest: Digest, hook: Hook = no_hook) -> RemoteCopy:
    """Bring a file into a tier, read it back, and return the proof.

    Raises:
        NotFoundError: there is no such file.
        CorruptError: the file, or what the tier made of it, is not what it should be.
        ObjectConflict: the tier has other bytes under that key.
        AccessDenied, UnavailableError: the tier refused, or did not answer.
    """
    source = FileSource(fs, path)
    try:
        if digest_of(source) != digest:
            raise CorruptError("the file is not what it was when it was made", path, 0)
        hook("checked")
        put = tier.put(key, source, digest)
        hook("put")
    finally:
        source.close()
    copy = confirm(tier, key, digest, put)
    hook("verified")
    return copy


def confirm(tier: Tier, key: str, digest: Digest, known: ObjectInfo | None = None) -> RemoteCopy:
    """Read an object back and return the proof that it is whole.

    Raises:
        NotFoundError: there is no such object.
        CorruptError: it is not what it should be.
    """
    info = verify_object(tier, key, digest)
    if known is not None:  # A put may tell more than a look does.
        info = info._replace(etag=info.etag or known.etag, version_id=info.version_id or known.version_id)
    return RemoteCopy(tier.name, info, digest, verified=True)


def hydrate(
    tier: Tier,
    key: str,
    fs: FileSystem,
    path: Path,
    digest: Digest,
    *,
    hook: Hook = no_hook,
    random_bytes: RandomBytes = secrets.token_bytes,
) -> None:
    """Bring an object back as a file, durable on return.

    Raises:
        NotFoundError: there is no such object.
        CorruptError: it is not what it should be; no file was made.
        ConflictError: a file with other bytes has that name.
    """
    if fs.exists(path):
        _check_present(fs, path, digest)
        hook("present")
        return
    source = TierSource(tier, key)
    sink = FileSink(fs, path.parent, random_bytes(TOKEN_BYTES).hex(), hook)
    try:
        for piece in pieces(source):
            sink.write(piece)
        sink.prove(digest, Path(key))
        hook("downloaded")
        sink.publish(path.name)
    except ConflictError:  # Somebody else brought it back meanwhile.
        sink.abandon()
        _check_present(fs, path, digest)
    except BaseException:
        sink.abandon()
        raise


def evict(fs: FileSystem, path: Path, tier: Tier, copy: RemoteCopy | None, hook: Hook = no_hook) -> None:
    """Remove a file whose bytes a tier holds for sure.

    The proof may be old: the tier is asked once more whether the object is there, and is the one that was verified.

    Raises:
        UsageError: there is no proof, or it is of another tier; the file stays.
        NotFoundError, CorruptError: the object is gone, or has other bytes; the file stays.
        AccessDenied, UnavailableError: the tier refused, or did not answer; the file stays.
    """
    if copy is None or not copy.verified:
        raise UsageError(f"{path} stays: no verified copy of it is known")
    if copy.tier != tier.name:
        raise UsageError(f"{path} stays: its copy was verified in {copy.tier}, not in {tier.name}")
    confirm_object(tier, copy.info._replace(size=copy.digest.size), copy.digest)
    hook("confirmed")
    try:
        fs.remove(path)
    except NotFoundError:  # An earlier attempt got as far as this.
        if not fs.exists(path.parent):
            return
    hook("removed")
    fs.sync_directory(path.parent)
    hook("durable")


def _check_present(fs: FileSystem, path: Path, digest: Digest) -> None:
    source = FileSource(fs, path)
    try:
        if digest_of(source) != digest:
            raise ConflictError(f"{path} exists with other bytes; remove it first")
    finally:
        source.close()
    fs.sync_directory(path.parent)  # The attempt that made it may have been cut before this.
