"""Encryption at rest: AES-256-GCM in frames, so that a stream is written in flat memory and read at any place.

The header, `HEADER_SIZE` bytes:

| offset | size | field       | type | meaning                                                        |
| -----: | ---: | ----------- | ---- | -------------------------------------------------------------- |
|      0 |    8 | magic       | [u8] | "LWCRYPTO"                                                     |
|      8 |    2 | version     | u16  | 1                                                              |
|     10 |    2 | algorithm   | u16  | 1: AES-256-GCM, key by HKDF-SHA256                             |
|     12 |    4 | checksum    | u32  | CRC-32C of this header, this field as zero                     |
|     16 |    4 | frame_bytes | u32  | plain bytes in each frame but the last                         |
|     20 |    4 | reserved    | u32  | 0                                                              |
|     24 |    8 | key_check   | [u8] | tells a wrong key from damage; made from the file's key        |
|     32 |   32 | salt        | [u8] | random; with the secret it makes the file's key                |
|     64 |    8 | prefix      | [u8] | random; the first 8 bytes of each nonce                        |
|     72 |   32 | key_id      | [u8] | which secret, in ASCII, zeros behind                           |

Little-endian.  Then the frames, each `frame_bytes` of cipher text and a tag of 16 bytes; the last has 0 to
`frame_bytes`, and 0 only if it is the first too.  Nonce: prefix, then the frame's number (u32, big-endian).
Additional data: the whole header, the frame's number (u64), and 1 (u8) for the last frame, 0 for the others.  So a
frame that was changed, cut, moved, repeated, or taken from another file does not decrypt.

Every file has a key of its own, so no number of files wears a secret out.   Format: docs/format/chunk.md
"""

import secrets
import struct
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from latewood.archive.keys import KeyRing
from latewood.archive.names import RandomBytes
from latewood.archive.sink import Sink
from latewood.archive.source import Source
from latewood.errors import CorruptError, KeyNotFound, UnsupportedVersion, UsageError
from latewood.kernel import crc32c
from latewood.limits import CRYPT_FRAME_BYTES_MAX, CRYPT_FRAME_BYTES_MIN, MiB

MAGIC: Final = b"LWCRYPTO"
VERSION: Final = 1
HEADER_SIZE: Final = 104
TAG_BYTES: Final = 16
FRAME_BYTES: Final = 1 * MiB
FRAMES_MAX: Final = 1 << 32
_ALGORITHM: Final = 1
_SALT_BYTES: Final = 32
_PREFIX_BYTES: Final = 8
_CHECK_BYTES: Final = 8
_KEY_BYTES: Final = 32
_CHECKSUM: Final = slice(12, 16)
_LAYOUT: Final = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version
    "H"  # algorithm
    "I"  # checksum
    "I"  # frame_bytes
    "I"  # reserved
    "8s"  # key_check
    "32s"  # salt
    "8s"  # prefix
    "32s"  # key_id
)
assert _LAYOUT.size == HEADER_SIZE
_ADDITIONAL: Final = struct.Struct("<QB")


class CryptHeader(NamedTuple):
    """What stands in front of the frames."""

    frame_bytes: int
    key_check: bytes
    salt: bytes
    prefix: bytes
    key_id: str


def encode_header(header: CryptHeader) -> bytes:
    """Return a header's bytes."""
    key_id = header.key_id.encode("ascii")
    fields = header.frame_bytes, 0, header.key_check, header.salt, header.prefix, key_id
    raw = bytearray(_LAYOUT.pack(MAGIC, VERSION, _ALGORITHM, 0, *fields))
    raw[_CHECKSUM] = crc32c(raw).to_bytes(4, "little")
    return bytes(raw)


def decode_header(raw: bytes, path: Path) -> CryptHeader:
    """Return what a header says.

    Raises:
        CorruptError: it is none, or not as it was written.
        UnsupportedVersion: a later program wrote it.
    """
    if len(raw) < HEADER_SIZE or raw[:8] != MAGIC:
        raise CorruptError("this is no encrypted file, or its header is cut short", path, 0)
    _, version, algorithm, checksum, frame_bytes, _, key_check, salt, prefix, key_id = _LAYOUT.unpack(raw[:HEADER_SIZE])
    if version != VERSION:
        raise UnsupportedVersion("encryption", version, path)
    zeroed = bytearray(raw[:HEADER_SIZE])
    zeroed[_CHECKSUM] = bytes(4)
    if crc32c(zeroed) != checksum:
        raise CorruptError("the header of the encryption does not match its checksum", path, 0)
    if algorithm != _ALGORITHM:
        raise UnsupportedVersion("encryption algorithm", algorithm, path)
    if not CRYPT_FRAME_BYTES_MIN <= frame_bytes <= CRYPT_FRAME_BYTES_MAX:
        raise CorruptError(f"frames of {frame_bytes:,} bytes are out of bounds", path, 16)
    return CryptHeader(frame_bytes, key_check, salt, prefix, key_id.rstrip(b"\0").decode("ascii", "replace"))


class _Cipher:
    """The key of one file, and how its frames are sealed and opened."""

    def __init__(self, header: CryptHeader, file_key: bytes) -> None:
        self._aes = AESGCM(file_key)
        self._prefix, self._header = header.prefix, encode_header(header)

    def seal(self, number: int, plain: bytes | memoryview, *, final: bool) -> bytes:
        return self._aes.encrypt(self._nonce(number), plain, self._additional(number, final=final))

    def open(self, number: int, sealed: bytes, *, final: bool) -> bytes:
        return self._aes.decrypt(self._nonce(number), sealed, self._additional(number, final=final))

    def _nonce(self, number: int) -> bytes:
        return self._prefix + number.to_bytes(4, "big")

    def _additional(self, number: int, *, final: bool) -> bytes:
        return self._header + _ADDITIONAL.pack(number, final)


class EncryptingSink:
    """Encrypts what is written to it into another sink.  `finish` writes the last frame."""

    def __init__(
        self,
        inner: Sink,
        keys: KeyRing,
        frame_bytes: int = FRAME_BYTES,
        random_bytes: RandomBytes = secrets.token_bytes,
    ) -> None:
        if not CRYPT_FRAME_BYTES_MIN <= frame_bytes <= CRYPT_FRAME_BYTES_MAX:
            raise UsageError(f"a frame has {CRYPT_FRAME_BYTES_MIN} to {CRYPT_FRAME_BYTES_MAX} bytes, not {frame_bytes}")
        self._inner, self._frame_bytes = inner, frame_bytes
        salt, prefix = random_bytes(_SALT_BYTES), random_bytes(_PREFIX_BYTES)
        file_key, check = _derive(keys.secret(keys.current_id), salt)
        header = CryptHeader(frame_bytes, check, salt, prefix, keys.current_id)
        self._cipher = _Cipher(header, file_key)
        self._waiting = bytearray()
        self._number = 0
        inner.write(encode_header(header))

    def write(self, data: bytes | memoryview) -> int:
        """Take all of `data`; return its length."""
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            # A full frame waits for the byte after it: only then it is known not to be the last.
            if len(self._waiting) == self._frame_bytes:
                self._seal(final=False)
            part = view[at : at + self._frame_bytes - len(self._waiting)]
            self._waiting += part
            at += len(part)
        return len(view)

    def finish(self) -> None:
        """Write the last frame.  Nothing may be written after it."""
        self._seal(final=True)

    def _seal(self, *, final: bool) -> None:
        if self._number >= FRAMES_MAX:
            raise UsageError("a file of more than 2^32 frames cannot be encrypted; use larger frames")
        self._inner.write(self._cipher.seal(self._number, bytes(self._waiting), final=final))
        self._waiting.clear()
        self._number += 1


class DecryptingSource:
    """The plain bytes of an encrypted source, at any place.  Holds one frame.

    The last frame is checked at once, so that a file that was cut is never taken for a whole one.
    """

    def __init__(self, inner: Source, keys: KeyRing) -> None:
        """Read the header and check the end.

        Raises:
            CorruptError: header or end are not as they were written.
            KeyNotFound: the key is not among those given, or another secret has its id.
            UnsupportedVersion: a later program wrote it.
        """
        self.path, self._inner = inner.path, inner
        header = decode_header(inner.read(0, min(HEADER_SIZE, inner.size)), inner.path)
        self.key_id, self._frame_bytes = header.key_id, header.frame_bytes
        self._count, self.size = _measure(inner, header)
        file_key, check = _derive(keys.secret(header.key_id), header.salt)
        if not secrets.compare_digest(check, header.key_check):
            raise KeyNotFound(f"{inner.path}: key {header.key_id!r} is not the one that it was encrypted with")
        self._cipher = _Cipher(header, file_key)
        self._held, self._plain = -1, b""
        self._frame(self._count - 1)

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` plain bytes at `offset`."""
        if offset < 0 or offset + length > self.size:
            raise CorruptError("the file ends too early", self.path, self._inner.size)
        parts = []
        while length > 0:
            number, at = divmod(offset, self._frame_bytes)
            part = self._frame(number)[at : at + length]
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close what is underneath, and forget the plain bytes."""
        self._held, self._plain = -1, b""
        self._inner.close()

    def _frame(self, number: int) -> bytes:
        if number != self._held:
            step = self._frame_bytes + TAG_BYTES
            start = HEADER_SIZE + number * step
            sealed = self._inner.read(start, min(step, self._inner.size - start))
            try:
                self._plain = self._cipher.open(number, sealed, final=number == self._count - 1)
            except InvalidTag:
                raise CorruptError(f"frame {number} is not what was encrypted", self.path, start) from None
            self._held = number
        return self._plain


def _measure(inner: Source, header: CryptHeader) -> tuple[int, int]:
    """Return how many frames there are, and how many plain bytes."""
    step, body = header.frame_bytes + TAG_BYTES, inner.size - HEADER_SIZE
    count = -(-body // step)
    last = body - (count - 1) * step - TAG_BYTES
    if body < TAG_BYTES or last < 0 or (last == 0 and count > 1) or count > FRAMES_MAX:
        raise CorruptError("the last frame is cut short", inner.path, inner.size)
    return count, body - count * TAG_BYTES


def _derive(secret: bytes, salt: bytes) -> tuple[bytes, bytes]:
    """Return the key of one file, and what is stored to know it again."""
    made = HKDF(SHA256(), _KEY_BYTES + _CHECK_BYTES, salt, b"latewood chunk v1").derive(secret)
    return made[:_KEY_BYTES], made[_KEY_BYTES:]
