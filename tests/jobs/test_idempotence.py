"""A handler killed before any of its steps, and run again, ends in the same state; one that does not is found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from latewood.catalog import Catalog
from latewood.catalog.ops import UpsertChunk
from latewood.catalog.tables import Component, CompressionCodec
from latewood.catalog.tables.chunk import ChunkKey, ChunkRecord
from latewood.jobs import JobContext, Result
from tests.jobs.kit import DB, Steps, prove_idempotent

HandlerUnderTest = Callable[[JobContext], Result]
Maker = Callable[[Path, Steps], HandlerUnderTest]
ROWS = ["a", "b", "c"]


def good(directory: Path, steps: Steps) -> HandlerUnderTest:
    """Write a file under a name that the payload decides, move it into place, tell the catalog with the completion."""

    def handler(context: JobContext) -> Result:
        target = directory / f"{context.payload['name']}.chunk"
        draft = target.with_suffix(".tmp")
        steps("begin the draft")
        draft.write_text("")
        for row in ROWS:
            steps(f"write {row}")
            with draft.open("a") as file:
                file.write(row)
        steps("publish")
        draft.replace(target)
        steps("tell of progress")
        context.progress(len(ROWS), len(ROWS))
        steps("complete")
        record = ChunkRecord(
            file_name=target.name,
            generation=1,
            size_bytes=target.stat().st_size,
            compression=CompressionCodec.NONE,
            shard=0,
            sequence_min=0,
            sequence_max=len(ROWS) - 1,
            row_count=len(ROWS),
        )
        return [UpsertChunk(ChunkKey(DB, 1), record)]

    return handler


def appends(directory: Path, steps: Steps) -> HandlerUnderTest:
    """Append to what is there: run again, it appends again."""

    def handler(_: JobContext) -> Result:
        steps("append")
        with (directory / "out").open("a") as file:
            file.write("x")
        steps("complete")
        return None

    return handler


def counts(_: Path, steps: Steps) -> HandlerUnderTest:
    """Count in the catalog before the completion, not with it."""

    def handler(context: JobContext) -> Result:
        steps("count")
        txn = context.begin_write()
        txn.bump_generation(Component.WAL)
        context.commit(txn)
        steps("complete")
        return None

    return handler


def picture(directory: Path, catalog: Catalog) -> object:
    files = {path.name: path.read_text() for path in directory.iterdir() if not path.name.startswith("catalog")}
    return files, list(catalog.scan_chunks(DB)), catalog.generation(Component.WAL)


@pytest.mark.slow
def test_a_handler_killed_at_any_step_and_run_again_ends_in_the_same_state(tmp_path: Path) -> None:
    steps = prove_idempotent(tmp_path, good, picture, {"name": "seven"})
    assert steps == ["begin the draft", "write a", "write b", "write c", "publish", "tell of progress", "complete"]


@pytest.mark.slow
@pytest.mark.parametrize("handler", [appends, counts])
def test_a_handler_that_is_not_idempotent_is_found(tmp_path: Path, handler: Maker) -> None:
    with pytest.raises(AssertionError, match="ends elsewhere"):
        prove_idempotent(tmp_path, handler, picture, {})
