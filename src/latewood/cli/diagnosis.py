"""What `latewood doctor` makes of what it finds.  Pure: facts in, checks and advice out."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from latewood.cli.human import format_duration, format_size
from latewood.limits import MiB
from latewood.replica.native import REMEDY

_REMOTE: Final = {"9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"}
_VOLATILE: Final = {"ramfs", "tmpfs"}
_SEGMENTS_FREE_MIN: Final = 4
_SYNC_SLOW_US: Final = 5_000
_SYNC_FAST_US: Final = 20
_CRC_FEATURES: Final = {"sse4_2", "crc32"}


class Facts(NamedTuple):
    """What was found on this machine."""

    version: str | None
    python: str
    kernel: str
    pure_is_forced: bool
    native_problem: str | None
    """Why the native kernel cannot be loaded."""
    cpu: str
    cpu_features: set[str]
    packages: dict[str, str | None]
    """Optional packages and their versions."""
    directory: str
    disk_kind: str | None
    free_bytes: int
    is_writable: bool
    sync_us: float | None
    segment_bytes: int


class Check(NamedTuple):
    """One line of the answer."""

    check: str
    value: str
    advice: str | None
    """What to do about it; None if it is fine."""


def diagnose(facts: Facts) -> list[Check]:
    """Return every check, in the order in which a reader wants them."""
    return [
        Check("latewood", facts.version or "not installed as a package", None),
        Check("python", facts.python, None),
        _kernel(facts),
        _cpu(facts),
        *_packages(facts),
        *_disk(facts),
    ]


def _kernel(facts: Facts) -> Check:
    if facts.kernel == "native":
        return Check("kernel", "native", None)
    if facts.pure_is_forced:
        advice = "LATEWOOD_PURE=1 asks for it; unset that for the native one, which is 10 to 40 times as fast"
        return Check("kernel", "pure Python", advice)
    advice = f"{REMEDY}: the native one is 10 to 40 times as fast, and a node of a cluster needs it"
    return Check("kernel", f"pure Python: {facts.native_problem}", advice)


def _cpu(facts: Facts) -> Check:
    if not facts.cpu_features:
        return Check("processor", facts.cpu, None)
    if found := sorted(_CRC_FEATURES & facts.cpu_features):
        return Check("processor", f"{facts.cpu}, checksums in hardware ({found[0]})", None)
    return Check("processor", f"{facts.cpu}, no checksum instruction", "checksums are computed in software: slower")


def _packages(facts: Facts) -> Iterator[Check]:
    why = {
        "pyarrow": "for Arrow columns: pip install 'latewood[arrow]'",
        "rich": "for colour: pip install 'latewood[pretty]'",
    }
    for name, version in facts.packages.items():
        yield Check(name, version or "not installed", None if version else why[name])


def _disk(facts: Facts) -> Iterator[Check]:
    yield Check(
        "directory", facts.directory, None if facts.is_writable else "it cannot be written: logs here are read-only"
    )
    yield Check("file system", facts.disk_kind or "unknown", _kind_advice(facts.disk_kind))
    room_min = _SEGMENTS_FREE_MIN * facts.segment_bytes
    advice = (
        f"less than {_SEGMENTS_FREE_MIN} segments of {facts.segment_bytes // MiB} MiB"
        if facts.free_bytes < room_min
        else None
    )
    yield Check("free space", format_size(facts.free_bytes), advice)
    if facts.sync_us is not None:
        cost = f"{format_duration(facts.sync_us / 1000)} for a small write and its sync"
        yield Check("fdatasync", cost, _sync_advice(facts.sync_us, facts.disk_kind))


def _kind_advice(kind: str | None) -> str | None:
    if kind in _VOLATILE:
        return "it is memory: everything is gone after a restart of the machine"
    if kind in _REMOTE:
        return "it is on another machine: locks and shared memory do not hold between machines; use a local disk"
    return None


def _sync_advice(sync_us: float, kind: str | None) -> str | None:
    if sync_us > _SYNC_SLOW_US:
        return "slow: append in batches, or from many producers at once, which share a sync"
    if sync_us < _SYNC_FAST_US and kind not in _VOLATILE:
        return (
            "too fast to be true: the disk, or whoever emulates it, may not write through; test it before you trust it"
        )
    return None
