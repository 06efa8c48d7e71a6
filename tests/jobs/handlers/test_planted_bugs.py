"""Bugs that must show, planted one at a time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from latewood.catalog import RequireRecord
from latewood.catalog.tables import WAL_STATE, ChunkRecord, JobKind, LocalAndRemote, RemoteArchived, RemoteObject
from latewood.jobs.handlers import archive, checkpoint, evict, flush, hydrate, removal, retain, store
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import Row, object_of
from latewood.jobs.handlers.hydrate import HYDRATE
from latewood.jobs.handlers.proof import Looked
from latewood.jobs.handlers.repair import MEND
from latewood.jobs.handlers.retain import RETAIN
from latewood.tasks.proof import ChunkLook, look_at_chunks
from latewood.tasks.removal import Removal
from tests.jobs.handlers import test_checkpoint, test_forks, test_orphans, test_retain, test_verify
from tests.jobs.handlers.lake import Lake, prove
from tests.jobs.handlers.test_cuts import archived, compacted, evicted, flushed, with_bad_objects

Patch = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[Path], object]


def nothing_swept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store, "sweep", lambda _: [])


def swept_under_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("latewood.jobs.handlers.orphans._is_at_work", lambda *_: False)


def only_copies_swept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("latewood.jobs.handlers.orphans.holds_only_copy", lambda *_: False)


def file_removed_before_the_row_says_so(patch: pytest.MonkeyPatch) -> None:
    commit = evict._evict_chunk

    def evict_chunk(attempt: Attempt, tier: Any, row: Row) -> None:
        attempt.fs.remove(attempt.db.chunk_path(row.record))
        commit(attempt, tier, row)

    patch.setattr(evict, "_evict_chunk", evict_chunk)


def file_claimed_before_it_is_there(patch: pytest.MonkeyPatch) -> None:
    bring_back = hydrate._hydrate_chunk

    def hydrate_chunk(attempt: Attempt, tier: Any, row: Row) -> None:
        def hydrated(record: ChunkRecord) -> ChunkRecord:
            assert isinstance(record.residency, RemoteArchived)
            return replace(record, residency=LocalAndRemote(object=record.residency.object, verified=True))

        attempt.change("commit hydrated", row.chunk_id, hydrated)
        bring_back(attempt, tier, row)

    patch.setattr(hydrate, "_hydrate_chunk", hydrate_chunk)


def object_vouched_for_before_it_is_there(patch: pytest.MonkeyPatch) -> None:
    send = archive.archive_chunk

    def archive_chunk(attempt: Attempt, tier: Any, row: Row) -> None:
        named = RemoteObject(tier=tier.name, key=attempt.db.object_key(row.record))
        residency = LocalAndRemote(object=named, verified=True)
        attempt.change("commit archived", row.chunk_id, lambda record: replace(record, residency=residency))
        send(attempt, tier, row)

    patch.setattr(archive, "archive_chunk", archive_chunk)


def parents_left_live(patch: pytest.MonkeyPatch) -> None:
    upsert = Attempt.upsert

    def kept(self: Attempt, chunk_id: int, record: ChunkRecord) -> Any:
        return upsert(self, chunk_id, replace(record, superseded_by=None))

    patch.setattr(Attempt, "upsert", kept)


def row_gone_before_the_object(patch: pytest.MonkeyPatch) -> None:
    removal = retain._removal

    def removal_late(attempt: Attempt, row: Row) -> Removal:
        retain._forget(attempt, [row.chunk_id])
        return removal(attempt, row)

    patch.setattr(retain, "_removal", removal_late)


def only_named_objects_removed(patch: pytest.MonkeyPatch) -> None:
    keys = retain._keys
    patch.setattr(retain, "_keys", lambda attempt, record: keys(attempt, record) if object_of(record) else [])


def archived_parents_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retain, "is_replaced", lambda *_: True)


def readers_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("latewood.jobs.handlers.expiry._is_free", lambda *_: True)


def chunks_not_proved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoint, "_is_proved", lambda *_: True)


def forks_not_asked_for_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(removal, "is_file_shared", lambda *_: False)


def forks_not_asked_for_objects(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(removal, "is_object_shared", lambda *_: False)


def progress_of_a_shard_not_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flush, "PutWalState", lambda key, _: RequireRecord(WAL_STATE, key, None))


def bad_object_vouched_for_while_it_is_replaced(patch: pytest.MonkeyPatch) -> None:
    change = Attempt.change

    def undoubting(self: Attempt, name: str, *rest: Any) -> bool:
        return False if name == "commit doubt" else change(self, name, *rest)

    patch.setattr(Attempt, "change", undoubting)


def rows_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    def looked_at_all(attempt: Attempt, chunk_ids: list[int], look: Callable[[int, ChunkRecord], ChunkLook]) -> Any:
        for chunk_id in chunk_ids:
            record = attempt.row(chunk_id)
            assert record
            for seen in attempt.map(look_at_chunks, [(look(chunk_id, record),)]):
                yield Looked(chunk_id, record, seen)

    patch.setattr("latewood.jobs.handlers.verify.looked_at_all", looked_at_all)


def proved(prepare: Callable[[Lake], None], kind: int, payload: "dict[str, Any] | None" = None) -> Check:
    return lambda directory: prove(directory, prepare, kind, payload)


def forked(test: Callable[[Lake], None]) -> Check:
    def check(directory: Path) -> None:
        with Lake(directory / "lake") as lake:
            lake.flush(10, 11)
            lake.run(JobKind.ARCHIVE)
            lake.fork()
            test(lake)

    return check


def flushed_first(test: Callable[[Lake], None]) -> Check:
    def check(directory: Path) -> None:
        with Lake(directory / "lake") as lake:
            lake.flush(10, 11)
            test(lake)

    return check


BUGS: Final[dict[Patch, Check]] = {
    nothing_swept: proved(flushed, JobKind.COMPACT),
    swept_under_others: test_orphans.test_files_of_a_job_at_work_stay,
    only_copies_swept: test_orphans.test_a_file_that_may_be_an_only_copy_stays_and_is_told,
    file_removed_before_the_row_says_so: proved(archived, JobKind.EVICT, {"now": True}),
    file_claimed_before_it_is_there: proved(evicted, HYDRATE),
    object_vouched_for_before_it_is_there: proved(flushed, JobKind.ARCHIVE),
    parents_left_live: proved(flushed, JobKind.COMPACT),
    row_gone_before_the_object: proved(compacted, RETAIN),
    only_named_objects_removed: test_retain.test_an_object_that_was_sent_but_not_committed_goes_with_the_chunk,
    archived_parents_not_waited_for: test_retain.test_an_archived_chunk_waits_until_what_replaced_it_is_archived_too,
    readers_not_asked: test_retain.test_what_a_reader_wants_stays,
    chunks_not_proved: test_checkpoint.test_a_chunk_that_is_not_sound_keeps_the_log_and_is_mended_from_it,
    forks_not_asked_for_files: forked(test_forks.test_what_one_database_lets_go_the_other_still_has),
    forks_not_asked_for_objects: forked(test_forks.test_what_one_database_lets_go_the_other_still_has),
    progress_of_a_shard_not_committed: proved(lambda lake: lake.append(40), JobKind.FLUSH, {"seal": True}),
    rows_not_looked_at_again: flushed_first(
        test_verify.test_a_chunk_that_is_moved_while_it_is_looked_at_is_not_called_lost
    ),
    bad_object_vouched_for_while_it_is_replaced: proved(with_bad_objects, MEND),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_shows(tmp_path: Path, bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        BUGS[bug](tmp_path)
