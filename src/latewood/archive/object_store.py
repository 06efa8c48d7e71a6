"""A tier in an object store: S3 and what speaks its language, Google Cloud Storage, Azure, memory.

How an object comes into being:

- Up to `create_bytes_max` it is sent in one request, on the condition that there is none.  The client takes such a body
  only from memory, so that bound is also one of memory, and chunks are made to stay below it.
- A larger one goes up in parts, in flat memory.  No store lets the client put a condition on the last step, so we look
  first, and read back after.  Two uploaders of one key would have to meet in between; keys end in 128 random bits.
  Parts of an upload that broke off are never seen, but kept and charged for: give the bucket a rule that removes them.

Retries are bounded: the client repeats what is safe to repeat, and `put` itself repeats a conditional request, because
an answer that was lost shows as an object that exists already, with our bytes.

Credentials come from the environment, or from `settings`.  They appear in no error, no name and no `repr`.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import from_url

from latewood.archive.names import IDENTITY_KEY
from latewood.archive.sink import Hook, no_hook
from latewood.archive.source import Digest, Source, pieces
from latewood.archive.tier import ObjectInfo, check_key, check_prefix, find, settle_existing
from latewood.errors import (
    AccessDenied,
    ConflictError,
    CorruptError,
    Forked,
    LatewoodError,
    NotFoundError,
    TierUnavailable,
    UsageError,
)
from latewood.kernel import crc32c
from latewood.limits import TIER_CREATE_BYTES_MAX, TIER_PIECE_BYTES

SCHEMES: Final = ("file", "s3", "gs", "az", "memory")
_DENIED: Final = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
_EXISTS: Final = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
_MISUSED: Final = (
    exceptions.InvalidPathError,
    exceptions.NotSupportedError,
    exceptions.UnknownConfigurationKeyError,
)
_MESSAGE_CHARS_MAX: Final = 500
_SIGNATURE: Final = re.compile(r"(?i)(\b(?:x-amz-(?:signature|credential|security-token)|sig|se|sp|token)=)[^&\s\"']+")
_SECRET_NAME: Final = re.compile(r"(?i)key|secret|token|password|credential|account|sas")
_SECRET_CHARS_MIN: Final = 4
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STATUS: Final = re.compile(r"status code: (4\d\d)\b")
_DENIED_STATUSES: Final = (401, 403)
_PASSING_STATUSES: Final = (408, 409, 425, 429)
"""Timeout, another request at the same time, too early, too many: they may work later."""
_BACKOFF_BASE: Final = 2
_PARALLEL_PARTS: Final = 2
_at_home: Final[list[int]] = []
"""The process that the client's threads are of, once there are some.  A mutable global, as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreOptions:
    """How patient a tier is, and how it sends."""

    timeout_ms: int = 30_000
    """For one request. An upload on a slow line may need more."""

    connect_timeout_ms: int = 5_000
    """For a connection."""

    retries_max: int = 4
    """How often one request is repeated."""

    retry_ms: int = 60_000
    """No request is repeated later than this after it was first sent."""

    backoff_ms: int = 100
    """The pause before the first repetition; it doubles."""

    backoff_max_ms: int = 5_000
    """The longest pause."""

    create_bytes_max: int = TIER_CREATE_BYTES_MAX
    """Larger objects go up in parts."""

    allow_http: bool = False
    """Talk to a store without encryption, as one on this machine may want."""

    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passed on to the client: endpoint, region, credentials. They override the environment."""


class ObjectStoreTier:
    """Objects in a bucket, under a prefix."""

    def __init__(
        self,
        store: Any,
        name: str,
        options: ObjectStoreOptions | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Hold the client's store; `open` is what makes one."""
        self.name, self._store = name, store
        self._options, self._sleep = options or ObjectStoreOptions(), sleep

    @classmethod
    def open(
        cls,
        url: str,
        options: ObjectStoreOptions | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Self:
        """Make a tier of `s3://bucket/prefix`, `gs://…`, `az://container/…`, `memory:///` or `file:///…`.

        Nothing is sent.  A `file:` tier never syncs, so a power cut may take what it has; `DirectoryTier` does.

        Raises:
            UsageError: the URL, or a setting, is not understood, or the URL has credentials in it.
        """
        options = options or ObjectStoreOptions()
        name = _name_of(url)
        try:
            with _Errors(name, "open", options.settings):
                return cls(_make_store(url, options), name, options, sleep)
        except TierUnavailable as error:  # Nothing was sent, so it is not the store that refused.
            raise UsageError(str(error)) from None

    def __repr__(self) -> str:
        return f"<ObjectStoreTier {self.name}>"

    def put(self, key: str, source: Source, digest: Digest) -> ObjectInfo:
        """Make an object if there is none."""
        check_key(key)
        if digest.size != source.size:
            raise CorruptError(f"{source.size:,} bytes, not {digest.size:,}", source.path, 0)
        if digest.size > self._options.create_bytes_max:
            return self._put_in_parts(key, source, digest)
        data = source.read(0, source.size)
        if crc32c(data) != digest.checksum:
            raise CorruptError("what was read is not what should be stored", source.path, 0)
        return self._create(key, data, digest)

    def get(self, key: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes of an object at `offset`."""
        if not length:
            return b""
        size_needed = offset + length
        try:
            with self._errors(key):
                data = bytes(obstore.get_range(self._store, check_key(key), start=offset, length=length))
        except (TierUnavailable, UsageError):
            # Each store has an answer of its own to a range beyond the end.
            if self.head(key).size >= size_needed:
                raise
            data = b""
        if len(data) != length:
            raise CorruptError(f"in {self.name}: it ends too early", Path(key), offset + len(data))
        return data

    def head(self, key: str) -> ObjectInfo:
        """Return what the store knows about an object."""
        with self._errors(key):
            return _info(key, obstore.head(self._store, check_key(key)))

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
        try:
            with self._errors(key):
                obstore.delete(self._store, check_key(key))
        except NotFoundError:
            return

    def sweep(self, prefix: str, hook: Hook = no_hook) -> Sequence[str]:
        """Nothing is left in sight: an upload in parts that was killed is for the store's own rules to end."""
        del prefix, hook
        return ()

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects under a prefix but the archive's identity, page by page."""
        check_prefix(prefix)
        with self._errors(prefix):
            for page in obstore.list(self._store, prefix or None):
                for meta in page:
                    if meta["path"] != IDENTITY_KEY:
                        yield _info(meta["path"], meta)

    def _create(self, key: str, data: bytes, digest: Digest) -> ObjectInfo:
        attempt = 0
        while True:
            try:
                with self._errors(key):
                    answer = obstore.put(self._store, key, data, mode="create", use_multipart=False)
            except _Exists:
                return settle_existing(self, key, digest)
            except TierUnavailable:
                if attempt >= self._options.retries_max:
                    raise
                self._sleep(_pause_s(self._options, attempt))
                attempt += 1
            else:
                return ObjectInfo(key, digest.size, answer.get("e_tag"), answer.get("version"))

    def _put_in_parts(self, key: str, source: Source, digest: Digest) -> ObjectInfo:
        if find(self, key) is not None:
            return settle_existing(self, key, digest)
        with self._errors(key):
            answer = obstore.put(
                self._store,
                key,
                _proved(source, digest),
                use_multipart=True,
                chunk_size=TIER_PIECE_BYTES,
                max_concurrency=_PARALLEL_PARTS,
            )
        return ObjectInfo(key, digest.size, answer.get("e_tag"), answer.get("version"))

    def _errors(self, key: str) -> "_Errors":
        _check_at_home(self.name)
        return _Errors(self.name, key, self._options.settings)


class _Exists(ConflictError):
    """There is an object already: what `put` looks at next."""


class _Errors:
    """Turns the client's errors into ours, without what they may give away."""

    def __init__(self, name: str, key: str, settings: Mapping[str, str]) -> None:
        self._where, self._settings = f"{name}: {key}", settings

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, LatewoodError | GeneratorExit):
            return
        if isinstance(error, FileNotFoundError):
            raise NotFoundError(f"{self._where}: there is no such object") from None
        if isinstance(error, _EXISTS):
            raise _Exists(self._where) from None
        if isinstance(error, exceptions.BaseError | OSError | ValueError):
            raise self._translated(error) from None

    def _translated(self, error: Exception) -> LatewoodError:
        message = f"{self._where}: {redacted(str(error), self._settings)}"
        status = _refusal(str(error))
        if isinstance(error, (*_DENIED, PermissionError)) or status in _DENIED_STATUSES:
            return AccessDenied(message)
        if isinstance(error, (*_MISUSED, ValueError)) or status:
            return UsageError(message)
        return TierUnavailable(message)


def _check_at_home(name: str) -> None:
    """Note whose threads the client has, or refuse to wait for what only those could do.

    Raises:
        Forked: they are of the parent process: this one would wait for ever.
    """
    if not _at_home:
        _at_home.append(os.getpid())
    if _at_home[0] != os.getpid():
        raise Forked(
            f"{name} cannot be asked in a forked process: its parent has used an object store before, and the threads "
            "for that are not here; fork earlier, or start processes with multiprocessing's 'spawn' or 'forkserver'"
        )


def redacted(text: str, settings: Mapping[str, str]) -> str:
    """Return the first line of a message without what settings keep secret, and without signatures in URLs."""
    line = text.partition("\n")[0]
    if code := _CODE.search(text):
        line = f"{line.partition('<')[0]}{code[1]}"
    for name, value in settings.items():
        if _SECRET_NAME.search(name) and len(str(value)) >= _SECRET_CHARS_MIN:
            line = line.replace(str(value), "***")
    return _SIGNATURE.sub(r"\1***", line)[:_MESSAGE_CHARS_MAX]


def _refusal(text: str) -> int | None:
    """Return the status of an answer that will be the same the next time, or None."""
    match = _STATUS.search(text)
    return int(match[1]) if match and int(match[1]) not in _PASSING_STATUSES else None


def _proved(source: Source, digest: Digest) -> Iterator[bytes]:
    """Yield the bytes of a source; the last of them only if all match the digest, so that no wrong object is made."""
    checksum, waiting = 0, b""
    for piece in pieces(source):
        if waiting:
            yield waiting
        checksum, waiting = crc32c(piece, checksum), piece
    if checksum != digest.checksum:
        raise CorruptError("what was read is not what should be stored", source.path, 0)
    yield waiting


def _name_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise UsageError(f"a tier is one of {', '.join(f'{scheme}:' for scheme in SCHEMES)}, not {parts.scheme!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError("credentials do not belong into the URL of a tier; use the environment, or settings")
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def _make_store(url: str, options: ObjectStoreOptions) -> Any:
    scheme = urlsplit(url).scheme
    if scheme in ("memory", "file"):
        if options.settings:
            raise UsageError(f"a {scheme}: tier has no settings")
        return from_url(url, mkdir=True) if scheme == "file" else from_url(url)
    backoff = {
        "init_backoff": timedelta(milliseconds=options.backoff_ms),
        "max_backoff": timedelta(milliseconds=options.backoff_max_ms),
        "base": _BACKOFF_BASE,
    }
    arguments: dict[str, Any] = {  # which settings there are differs from store to store
        "config": dict(options.settings) or None,
        "client_options": {
            "timeout": timedelta(milliseconds=options.timeout_ms),
            "connect_timeout": timedelta(milliseconds=options.connect_timeout_ms),
            "allow_http": options.allow_http,
        },
        "retry_config": {
            "max_retries": options.retries_max,
            "retry_timeout": timedelta(milliseconds=options.retry_ms),
            "backoff": backoff,
        },
    }
    return from_url(url, **arguments)


def _pause_s(options: ObjectStoreOptions, attempt: int) -> float:
    pause_ms: int = min(options.backoff_ms * _BACKOFF_BASE**attempt, options.backoff_max_ms)
    return pause_ms / 1000


def _info(key: str, meta: Any) -> ObjectInfo:
    return ObjectInfo(key, meta["size"], meta.get("e_tag"), meta.get("version"))
