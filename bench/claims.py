"""Every claim about the log's speed: what is done, who else does it, and what the log must reach."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from bench.contest import Bound, Claim, Rival, Target
from bench.measure import MiB
from bench.processes import Job, Kind

_MILLISECOND: Final = 1_000_000
_SIZES: Final = ((100, "100 B"), (1024, "1 KiB"))


class Effort(NamedTuple):
    """How long to measure."""

    rounds: int
    seconds: float
    megabytes: int
    records: int
    durable_rounds: int
    tail_records: int
    memory_gigabytes: float


FULL: Final = Effort(
    rounds=5,
    seconds=0.4,
    megabytes=512,
    records=200_000,
    durable_rounds=15,
    tail_records=1500,
    memory_gigabytes=10,
)
QUICK: Final = Effort(
    rounds=3,
    seconds=0.15,
    megabytes=256,
    records=50_000,
    durable_rounds=5,
    tail_records=500,
    memory_gigabytes=2,
)


def claims(effort: Effort) -> list[Claim]:
    """Return every claim, in the order of the table."""
    found = [*_appends(effort), *_batches(effort), *_fresh(effort), *_reads(effort)]
    return [*found, *_durable(effort), *_producers(effort), *_opens(effort), _tail(effort), _memory(effort)]


def _job(workload: str, **arguments: Any) -> Job:
    return Job(workload, arguments)


def _least(value: float) -> Target:
    return Target("at least", value)


def _most(value: float) -> Target:
    return Target("at most", value)


def _appends(effort: Effort) -> Iterator[Claim]:
    for size, name in _SIZES:

        def job(store: str, size: int = size) -> Job:
            return _job("workloads:AppendOne", store=store, payload_bytes=size, seconds=effort.seconds)

        yield Claim(
            name=f"append-{size}",
            title=f"single append, {name}",
            unit="time",
            native=job("log"),
            pure=job("log"),
            rounds=effort.rounds,
            bounds=[
                Bound("CPU of all threads", "process_ns", _most(300) if size == 100 else None),
                Bound("CPU of the calling thread", "thread_ns", None),
            ],
            rivals=[
                Rival("LMDB, a txn each, sync=False", "peers", job("lmdb"), _least(10) if size == 100 else None),
                Rival("SQLite WAL, synchronous=OFF", "peers", job("sqlite")),
                Rival("SQLite WAL, synchronous=NORMAL", "peers", job("sqlite-normal")),
                Rival("rocksdict, WAL not synced", "peers", job("rocksdict")),
                Rival("persist-queue", "peers", job("persist-queue")),
                Rival("diskcache.Deque", "peers", job("diskcache")),
            ],
        )


def _batches(effort: Effort) -> Iterator[Claim]:
    for size, name in _SIZES:

        def job(store: str, size: int = size) -> Job:
            return _job("workloads:AppendMany", store=store, payload_bytes=size, seconds=effort.seconds)

        small = size == 100
        yield Claim(
            name=f"batch-{size}",
            title=f"batches of 1,000, {name}, a record",
            unit="time",
            native=job("log"),
            pure=job("log"),
            rounds=effort.rounds,
            bounds=[Bound("CPU of all threads", "process_ns", None)],
            rivals=[
                Rival("LMDB putmulti, sync=False", "peers", job("lmdb"), _least(5 if small else 1.5)),
                Rival("LMDB putmulti, synced each MiB as the log is", "peers", job("lmdb-synced"), None),
                Rival("rocksdict WriteBatch", "peers", job("rocksdict"), _least(8) if small else None),
                Rival("SQLite WAL executemany, OFF", "peers", job("sqlite")),
                Rival("LMDB putmulti, sync=False", "peers", job("lmdb"), _least(0.5), pure=True),
                Rival(
                    "the log itself, from Arrow",
                    "native",
                    _job("ours:Arrow", payload_bytes=size, seconds=effort.seconds),
                ),
            ],
        )


def _fresh(effort: Effort) -> Iterator[Claim]:
    for size, name in _SIZES:

        def job(megabytes: int, size: int = size) -> Job:
            return _job("workloads:Fill", store="log", payload_bytes=size, megabytes=megabytes)

        def raw(*, sync: bool) -> Job:
            return _job("raw:SequentialWrite", megabytes=effort.megabytes, sync=sync)

        yield Claim(
            name=f"fresh-{size}",
            title=f"fresh segments, {name}, payload bytes",
            unit="bandwidth",
            native=job(effort.megabytes),
            pure=job(effort.megabytes // 4),
            rounds=effort.rounds,
            rivals=[
                Rival("write() 1 MiB, fdatasync per 64 MiB", "peers", raw(sync=True), _least(0.3)),
                Rival("write() 1 MiB, never synced", "peers", raw(sync=False)),
                Rival("memcpy", "peers", _job("raw:Memcpy")),
            ],
            note="preparation, rolls, close",
        )


def _reads(effort: Effort) -> Iterator[Claim]:
    megabytes = effort.megabytes // 2
    for size, name in _SIZES:
        job = _job("ours:Verify", payload_bytes=size, megabytes=megabytes)
        yield Claim(
            name=f"verify-{size}",
            title=f"verify, {name}",
            unit="bandwidth",
            native=job,
            pure=_job("ours:Verify", payload_bytes=size, megabytes=megabytes // 8),
            rounds=effort.rounds,
            rivals=[
                Rival("page cache read, mmap", "peers", _page_cache(megabytes, copied=True), _least(0.5)),
                Rival("looked at by memchr, mmap", "peers", _page_cache(megabytes, copied=False)),
            ],
        )
    yield Claim(
        name="iterate-100",
        title="iterate, 100 B, a record",
        unit="time",
        native=_iterate(effort, "log"),
        pure=_iterate(effort, "log"),
        rounds=effort.rounds,
        rivals=[
            Rival("LMDB cursor", "peers", _iterate(effort, "lmdb")),
            Rival("rocksdict iterator", "peers", _iterate(effort, "rocksdict")),
            Rival("SQLite select", "peers", _iterate(effort, "sqlite")),
            Rival("diskcache.Deque", "peers", _iterate(effort._replace(records=2000), "diskcache")),
        ],
        note="checksums looked at",
    )
    yield Claim(
        name="arrow-100",
        title="scan to Arrow, 100 B, a record",
        unit="time",
        native=_job("ours:ArrowScan", payload_bytes=100, megabytes=megabytes),
        pure=_job("ours:ArrowScan", payload_bytes=100, megabytes=megabytes // 8),
        rounds=effort.rounds,
        rivals=[
            Rival("rocksdict iterator", "peers", _iterate(effort, "rocksdict"), _least(4)),
            Rival("LMDB cursor", "peers", _iterate(effort, "lmdb")),
        ],
        note="checksums looked at; peers give Python bytes",
    )


def _page_cache(megabytes: int, *, copied: bool) -> Job:
    return _job("raw:PageCacheRead", megabytes=megabytes, copied=copied)


def _iterate(effort: Effort, store: str) -> Job:
    return _job("workloads:Iterate", store=store, payload_bytes=100, records=effort.records)


def _durable_job(store: str, *, batches: bool) -> Job:
    return _job("workloads:Durable", store=store, payload_bytes=100, count=15 if batches else 40, batches=batches)


def _durable(effort: Effort) -> Iterator[Claim]:
    def raw(*, growing: bool) -> Job:
        return _job("raw:DurableWrite", record_bytes=128, records=40, growing=growing)

    yield Claim(
        name="durable-one",
        title="durable append, 100 B, median",
        unit="time",
        native=_durable_job("log", batches=False),
        pure=_durable_job("log", batches=False),
        rounds=effort.durable_rounds,
        rivals=[
            Rival("write + fdatasync, growing file", "peers", raw(growing=True), _most(1.15)),
            Rival("write + fdatasync, file of zeros", "peers", raw(growing=False)),
            Rival("LMDB, a txn each, sync=True", "peers", _durable_job("lmdb", batches=False)),
            Rival("SQLite WAL, synchronous=FULL", "peers", _durable_job("sqlite", batches=False)),
            Rival("rocksdict, sync=True", "peers", _durable_job("rocksdict", batches=False)),
        ],
    )
    yield Claim(
        name="durable-batch",
        title="durable batch of 1,000, 100 B, median",
        unit="time",
        native=_durable_job("log", batches=True),
        pure=_durable_job("log", batches=True),
        rounds=effort.durable_rounds,
        rivals=[
            Rival("LMDB putmulti, sync=True", "peers", _durable_job("lmdb", batches=True), _least(1.5)),
            Rival("SQLite WAL executemany, FULL", "peers", _durable_job("sqlite", batches=True)),
            Rival("rocksdict WriteBatch, sync=True", "peers", _durable_job("rocksdict", batches=True)),
        ],
    )


def _producers(effort: Effort) -> Iterator[Claim]:
    one_by_one = _durable_job("log", batches=False)
    for kind, target in (("asyncio", _least(10)), ("threads", None)):
        job = _job("ours:Producers", kind=kind, records=100 if effort is FULL else 50)
        yield Claim(
            name=f"producers-{kind}",
            title=f"64 durable producers, {'asyncio' if kind == 'asyncio' else 'threads'}",
            unit="rate",
            native=job,
            pure=job,
            rounds=effort.rounds,
            rivals=[Rival("one by one", "native", one_by_one, target)],
        )


def _opens(effort: Effort) -> Iterator[Claim]:
    for segments in (10, 1_000, 10_000):
        job = _job("ours:Open", segments=segments)
        yield Claim(
            name=f"open-{segments}",
            title=f"open with {segments:,} sealed segments",
            unit="time",
            native=job,
            pure=job,
            rounds=effort.durable_rounds,
            bounds=[Bound("single milliseconds", "wall_ns", _most(10 * _MILLISECOND))],
        )

    def killed(store: str) -> Job:
        return _job("workloads:Killed", store=store)

    yield Claim(
        name="killed",
        title="open after kill -9 at full speed",
        unit="time",
        native=killed("log"),
        pure=killed("log"),
        rounds=effort.rounds,
        bounds=[Bound("single milliseconds", "wall_ns", _most(10 * _MILLISECOND))],
        rivals=[
            Rival("LMDB, sync=False", "peers", killed("lmdb")),
            Rival("SQLite WAL, synchronous=OFF", "peers", killed("sqlite")),
            Rival("rocksdict", "peers", killed("rocksdict")),
        ],
    )


def _tail(effort: Effort) -> Claim:
    native: Kind = "native"
    return Claim(
        name="tail",
        title="append to another process's reader, p50",
        unit="time",
        native=_job("ours:Tail", records=effort.tail_records),
        pure=_job("ours:Tail", records=effort.tail_records),
        rounds=3 if effort is FULL else 1,
        bounds=[Bound("p99", "p99_ns", None), Bound("p99", "p99_ns", None, pure=True)],
        rivals=[
            Rival("pipe, p50", native, _job("raw:PipeWake", records=effort.tail_records)),
            Rival("pipe, p99", native, _job("raw:PipeWake", records=effort.tail_records), figure="p99_ns"),
        ],
        note="one each ms",
    )


def _memory(effort: Effort) -> Claim:
    return Claim(
        name="memory",
        title=f"growth while writing and scanning {effort.memory_gigabytes:g} GB",
        unit="bytes",
        native=_job("ours:Memory", gigabytes=effort.memory_gigabytes),
        pure=_job("ours:Memory", gigabytes=effort.memory_gigabytes / 10),
        rounds=1,
        bounds=[
            Bound("own memory", "own_bytes", _most(32 * MiB)),
            Bound("with mapped files, of 64 MiB each", "all_bytes", _most(128 * MiB)),
        ],
        note="pure: a tenth of that",
    )
