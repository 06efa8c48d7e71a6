"""Secrets by id: the current one encrypts, all of them decrypt.

As text, in a key file or an environment variable: `id:secret`, one in a line or divided by commas, the current one
first.  The secret is 64 hexadecimal digits.  Empty lines and those that begin with `#` count for nothing.

No secret ever appears in an error, in a log or in `repr`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from latewood.errors import KeyNotFound, UsageError
from latewood.fs import FileSystem
from latewood.limits import KiB

SECRET_BYTES: Final = 32
KEY_ID_BYTES_MAX: Final = 32
_KEY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_SECRET: Final = re.compile(r"[0-9A-Fa-f]{64}")
_FILE_BYTES_MAX: Final = 64 * KiB


class KeyRing:
    """The keys that a program has."""

    __slots__ = ("_secrets", "current_id")

    def __init__(self, secrets: Mapping[str, bytes], current_id: str) -> None:
        """Hold secrets of 32 bytes by their ids.

        Raises:
            UsageError: an id or a secret has the wrong form, or the current one is missing.
        """
        for key_id, secret in secrets.items():
            if not _KEY_ID.fullmatch(key_id):
                raise UsageError("a key's id is up to 32 letters, digits, dots, dashes or underscores")
            if len(secret) != SECRET_BYTES:
                raise UsageError(f"the secret of key {key_id!r} must have {SECRET_BYTES} bytes")
        if current_id not in secrets:
            raise UsageError("the current key is not among the keys")
        self._secrets = dict(secrets)
        self.current_id = current_id

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """Read keys from text; `where` is what errors call it.

        Raises:
            UsageError: it has no keys, or one that is not of the form.
        """
        secrets: dict[str, bytes] = {}
        lines = [line.strip() for line in re.split(r"[\n,]", text)]
        for number, line in enumerate(lines, 1):
            if not line or line.startswith("#"):
                continue
            key_id, _, secret = (part.strip() for part in line.partition(":"))
            if not _KEY_ID.fullmatch(key_id) or not _SECRET.fullmatch(secret):
                # What stands there may be a secret, so it is not shown.
                raise UsageError(f"{where}, key {number}: not of the form id:secret with 64 hexadecimal digits")
            if key_id in secrets:
                raise UsageError(f"{where}: two keys have the id {key_id!r}")
            secrets[key_id] = bytes.fromhex(secret)
        if not secrets:
            raise UsageError(f"{where}: there is no key")
        return cls(secrets, next(iter(secrets)))

    @classmethod
    def from_file(cls, fs: FileSystem, path: Path) -> Self:
        """Read a key file.

        Raises:
            NotFoundError: there is none.
            UsageError: it is not one.
        """
        file = fs.open(path)
        try:
            data = file.pread(_FILE_BYTES_MAX + 1, 0)
        finally:
            file.close()
        if len(data) > _FILE_BYTES_MAX or not data.isascii():
            raise UsageError(f"{path}: this is no key file")
        return cls.parse(data.decode("ascii"), str(path))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], name: str) -> Self:
        """Read keys from a variable of `environ`, such as `os.environ`.

        Raises:
            UsageError: it is not set, or has no keys.
        """
        if name not in environ:
            raise UsageError(f"the environment variable {name} is not set")
        return cls.parse(environ[name], f"the environment variable {name}")

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all keys, the current one first."""
        return (self.current_id, *(key_id for key_id in self._secrets if key_id != self.current_id))

    def using(self, key_id: str) -> "KeyRing":
        """Return the same keys, with another one to encrypt with.

        Raises:
            KeyNotFound: it is not here.
        """
        self.secret(key_id)
        return KeyRing(self._secrets, key_id)

    def secret(self, key_id: str) -> bytes:
        """Return the secret of a key.

        Raises:
            KeyNotFound: it is not here.
        """
        try:
            return self._secrets[key_id]
        except KeyError:
            raise KeyNotFound(f"key {key_id!r} is not among those given: {', '.join(self.ids)}") from None

    def __repr__(self) -> str:
        return f"<KeyRing {', '.join(self.ids)}>"
