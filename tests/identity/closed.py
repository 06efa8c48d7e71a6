"""Events that happen to a directory that nobody has open, and what everybody who knew more must be told.

Whoever is refused does what the error says, word by word, as a person would; after that it must go on.
"""

import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import latewood
from latewood.errors import AnotherLog, CorruptError, DataLost, LatewoodError, ReaderAhead
from latewood.log.listing import list_segments
from tests.cli.shell import run
from tests.identity.book import Book, Found, Place, Wrong, require
from tests.identity.scene import Scene
from tests.identity.subjects import NAME, READER, StoreProgram
from tests.spark.query import Query

Errors = Counter[str]
ADVICE_MAX: Final = 4
"""Commands that one error after another may name until all is well."""


# -- doing what an error says ----------------------------------------------------------------------------------------


def advised(error: LatewoodError, target: Path) -> None:
    """Run the commands that an error names, of readers only the first; one without a directory means `target`.

    Raises:
        Wrong: it names none, or that fails.
    """
    commands = [shlex.split(text) for text in re.findall(r"`latewood ([^`]+)`", str(error))]
    if [one[0] for one in commands] == ["verify"]:
        _restore_files(target)
        return
    commands = [one for one in commands if one[0] in ("rebuild", "readers")]
    if not commands:
        raise Wrong(f"an error that says nothing to do: {type(error).__name__}: {error}")
    for command in commands:
        if command[-1] in ("rebuild", "--catalog", "--accept-loss"):
            command.append(str(target))
        is_rebuild = command[0] == "rebuild" and "--dry-run" not in command
        result = run(*command, *(["--yes"] if is_rebuild else []))
        if result.exit_code == 4 and is_rebuild and "--accept-loss" not in command:  # The report says so.
            result = run(*command, "--accept-loss", "--yes")
        is_done = result.exit_code == 0 or (result.exit_code == 4 and "--dry-run" in command)
        require(is_done, f"`latewood {' '.join(command)}` fails", result.output)
        if command[0] == "readers":
            return


def _restore_files(target: Path) -> None:
    """Have `verify` name what is damaged, as the guide says, and restore all of that from one copy."""
    result = run("verify", "--deep", target)
    require(result.exit_code == 4, "what is refused as damaged is sound to `verify`", result.output)
    require(newest_of(target).exists(), "there is no copy to restore from")
    shutil.rmtree(target)
    shutil.copytree(newest_of(target), target)


def newest_of(path: Path) -> Path:
    """Return where the copy of a directory is that was made before its parts were exchanged."""
    return path.with_name("newest")


def mended(act: Callable[[], object], target: Path, errors: Errors) -> int:
    """Do something, following the advice of each error until it works; return how often that was needed."""
    for tries in range(ADVICE_MAX + 1):
        try:
            act()
        except CorruptError as error:
            require(tries < ADVICE_MAX, f"following the advice does not help: {type(error).__name__}", error)
            errors[type(error).__name__] += 1
            advised(error, target)
        else:
            return tries
    return ADVICE_MAX


# -- the whole directory ---------------------------------------------------------------------------------------------


def renamed(scene: Scene, errors: Errors) -> int:
    """It is moved while it is closed, which is no event at all: it is the same there."""
    del errors
    scene.path.rename(scene.elsewhere)
    scene.path = scene.elsewhere
    _write(scene, scene.book)
    return scene.book.check(scene.subject.read(scene.path))


def older(scene: Scene, errors: Errors) -> int:
    """An older copy is put in its place."""
    scene.path.rename(scene.elsewhere)
    scene.original = scene.elsewhere
    shutil.copytree(scene.older, scene.path)
    scene.there = scene.older_book
    checked = scene.older_book.check(scene.subject.read(scene.path))
    restored_older(scene, errors)
    return checked + scene.older_book.check(scene.subject.read(scene.path))


def made_anew(scene: Scene, errors: Errors) -> int:
    """It is deleted, and made anew."""
    scene.path.rename(scene.elsewhere)
    book = scene.subject.make(scene.path, scene.chance)
    if scene.subject.name in ("log", "checkpoint"):
        _check_stranger(scene, book, errors)
        _check_query(scene, book, errors, must_be_told=True)
    return book.check(scene.subject.read(scene.path))


def restored_older(scene: Scene, errors: Errors) -> None:
    """See what readers and queries are told in an older copy that was put in the place of a log.

    They are asked before it has grown past them, or after it has begun a new life, as the guide says.
    """
    if scene.subject.name not in ("log", "checkpoint"):
        _write(scene, scene.older_book)
        return
    assert scene.original is None or scene.original == scene.elsewhere
    end = max((place.sequence + 1 for place in scene.older_book.kept), default=0)
    begins_life = scene.chance.random() < 0.5
    if begins_life:
        result = run("rebuild", "--new-life", "--yes", scene.path)
        require(result.exit_code == 0, "`latewood rebuild --new-life` fails", result.output)
        _write(scene, scene.older_book)
    rows = _rows_of(scene)
    if rows is None:
        return
    _check_query(scene, scene.older_book, errors, must_be_told=len(rows[1]) > end)
    position = _carry_reader(scene)
    if position is not None and position > end:
        _check_ahead(scene, errors, position)
    if not begins_life:
        _write(scene, scene.older_book)


def _rows_of(scene: Scene) -> "tuple[list[str], list[tuple[int, bytes]]] | None":
    """Have a query read all of the directory that was there; return its checkpoint and its rows."""
    if scene.original is None or scene.subject.name not in ("log", "checkpoint"):
        return None
    query = Query(scene.original)
    rows = query.run()
    query.stop()
    scene.book.check_some(Found(Place(0, sequence), payload) for sequence, payload in rows)
    scene.offsets = query.offsets
    return query.offsets, rows


def _check_query(scene: Scene, book: Book, errors: Errors, *, must_be_told: bool) -> None:
    """Start a query with the checkpoint of the directory that was there."""
    if not scene.offsets:
        original, scene.original = scene.original, scene.elsewhere
        _rows_of(scene)
        scene.original = original
    if not scene.offsets:
        return
    query = Query(scene.path)
    query.offsets, query.done = list(scene.offsets), len(scene.offsets)
    try:
        rows = query.run()
    except (AnotherLog, DataLost) as error:
        errors[type(error).__name__] += 1
        told = isinstance(error, DataLost) or "new checkpointLocation" in str(error)
        require(told, "the error does not say what to do", error)
        rows = Query(scene.path).run()
        require([sequence for sequence, _ in rows] == list(range(len(rows))), "a new query skips records")
    else:
        require(not must_be_told, "a query went on in a log that is not the one that it has read")
    book.check_some(Found(Place(0, sequence), payload) for sequence, payload in rows)
    query.stop()


def _carry_reader(scene: Scene) -> int | None:
    """Bring the file of the named reader over, from the directory that was there; return its position."""
    assert scene.original is not None
    name = f"readers/{READER}.meta"
    if scene.older_book is not scene.there or not (scene.original / name).exists():
        return None
    with latewood.open(scene.original, mode="r") as log:
        position = next(one.sequence for one in log.readers() if one.name == READER)
    (scene.path / "readers").mkdir(exist_ok=True)
    shutil.copy(scene.original / name, scene.path / name)
    return position


def _check_ahead(scene: Scene, errors: Errors, position: int) -> None:
    with latewood.open(scene.path) as log:
        try:
            log.reader(READER).close()
        except (ReaderAhead, AnotherLog) as error:
            errors[type(error).__name__] += 1
            told: CorruptError = error
        else:
            raise Wrong(f"a reader at {position} went on in an older copy that ends at {log.next_sequence}")
    advised(told, scene.path)
    with latewood.open(scene.path) as log, log.reader(READER) as reader:
        scene.older_book.check_some(Found(Place(0, record.sequence), record.payload) for record in reader)
        reader.commit()


def _check_stranger(scene: Scene, book: Book, errors: Errors) -> None:
    """Bring the file of the named reader over to another log."""
    source = scene.elsewhere / "readers" / f"{READER}.meta"
    if not source.exists():
        return
    (scene.path / "readers").mkdir(exist_ok=True)
    shutil.copy(source, scene.path / "readers" / f"{READER}.meta")
    with latewood.open(scene.path) as log:
        try:
            log.reader(READER).close()
        except AnotherLog as error:
            errors[type(error).__name__] += 1
            told = error
        else:
            raise Wrong("a reader went on in another log than it had read")
    advised(told, scene.path)
    with latewood.open(scene.path) as log, log.reader(READER) as reader:
        found = [Found(Place(0, record.sequence), record.payload) for record in reader]
        reader.commit()
    book.check(found)


# -- parts of it -----------------------------------------------------------------------------------------------------


def older_manifest(scene: Scene, errors: Errors) -> int:
    """The manifest and what belongs to it are of an older copy; the segments are the newer ones: nothing is lost."""
    _copy(scene)
    for name in ("manifest.1", "manifest.2", "manifest.current", "index.meta", "identity"):
        _exchange(scene, name)
    return _mended_whole(scene, errors)


def older_over_it(scene: Scene, errors: Errors) -> int:
    """An older copy is put over the newer log: what is only in newer segments is still there, and found.

    The segment that was open in the older copy is another matter: before others it is not believed, and that is told.
    """
    _copy(scene)
    with latewood.open(scene.path, mode="r") as log:
        newer = [one for one in list_segments(log) if not (scene.older / one.path.relative_to(scene.path)).exists()]
    behind = min((one.first_sequence for one in newer), default=None)
    shutil.copytree(scene.older, scene.path, dirs_exist_ok=True)
    mended(lambda: scene.begin().close(), scene.path, errors)
    survivors = {place for place in scene.book.kept if behind is not None and place.sequence >= behind}
    if behind is None:
        survivors = set(scene.older_book.kept)
    with latewood.open(scene.path, mode="r") as log:
        found = [Found(Place(0, record.sequence), record.payload) for record in _all_of(log)]
    scene.book.check_some(found)
    missing = survivors - {one.place for one in found}
    require(not missing, "records in newer segments are lost", sorted(missing)[:5])
    return len(survivors)


def _all_of(log: Any) -> Iterator[Any]:
    """Yield every record, across what was accepted to be lost."""
    at = log.first_sequence
    while at < log.next_sequence:
        try:
            for record in log.scan(at):
                yield record
                at = record.sequence + 1
        except DataLost as error:
            at = error.stop


def older_segments(scene: Scene, errors: Errors) -> int:
    """The segments are of an older copy, beside the newer manifest."""
    _copy(scene)
    _exchange(scene, "segments")
    return _mended_older(scene, errors)


def no_manifest(scene: Scene, errors: Errors) -> int:
    """The manifest is gone."""
    _copy(scene)
    (scene.path / "manifest.current").unlink()
    return _mended_whole(scene, errors)


def _mended_whole(scene: Scene, errors: Errors) -> int:
    mended(lambda: scene.begin().close(), scene.path, errors)
    checked = scene.book.check(scene.subject.read(scene.path))
    _write(scene, scene.book)
    return checked + scene.book.check(scene.subject.read(scene.path))


def _mended_older(scene: Scene, errors: Errors) -> int:
    """Open it, following the advice; then all of the older copy must be there, and nothing that was not written."""

    def read() -> None:
        scene.begin().close()
        found[:] = scene.subject.read(scene.path)

    found: list[Found] = []
    mended(read, scene.path, errors)
    scene.book.check_some(found)
    scene.older_book.asked = scene.book.asked
    scene.older_book.check(found)
    return len(scene.older_book.kept)


def older_shards(scene: Scene, errors: Errors) -> int:
    """The logs of shards, all or one, are of an older copy; catalog and chunks are the newer ones."""
    shards = sorted(scene.path.glob("databases/*/shards/*"))
    few = shards if scene.chance.random() < 0.5 else [scene.chance.choice(shards)]
    covered = _covered(scene)
    for path in few:
        _exchange(scene, path.relative_to(scene.path))
    return _mended_shards(scene, covered, errors)


def shard_gone(scene: Scene, errors: Errors) -> int:
    """The directory of a shard is gone."""
    covered = _covered(scene)
    gone = scene.chance.choice(sorted(scene.path.glob("databases/*/shards/*")))
    shutil.rmtree(gone)
    for place in [place for place in scene.older_book.kept if place.shard == int(gone.name)]:
        del scene.older_book.kept[place]
    return _mended_shards(scene, covered, errors)


def older_catalog(scene: Scene, errors: Errors) -> int:
    """The catalog is of an older copy, or gone: the logs and chunks have it all."""
    if scene.chance.random() < 0.5:
        _exchange(scene, "catalog.mdb")
    else:
        (scene.path / "catalog.mdb").unlink()
    if not (scene.path / "catalog.mdb").exists() or scene.chance.random() < 0.5:
        result = run("rebuild", "--catalog", "--yes", scene.path)
        require(result.exit_code == 0, "`latewood rebuild --catalog` fails", result.output)
        return _mended_whole(scene, errors)
    try:
        found = scene.subject.read(scene.path)
        return scene.book.check(found)
    except LatewoodError as error:  # It is told, and the guide says what to do.
        errors[type(error).__name__] += 1
    result = run("rebuild", "--catalog", "--yes", scene.path)
    require(result.exit_code == 0, "`latewood rebuild --catalog` fails", result.output)
    return _mended_whole(scene, errors)


def _covered(scene: Scene) -> dict[int, int]:
    """Return how far the chunks of each shard go."""
    with closing(scene.begin()) as program:
        assert isinstance(program, StoreProgram)
        return {shard.number: shard._inventory.covered(shard.number) for shard in program.db.shards}


def _mended_shards(scene: Scene, covered: dict[int, int], errors: Errors) -> int:
    """Write to each shard, following the advice, and read everything that is in chunks."""
    book, fresh = scene.book, dict.fromkeys(covered, 0)

    def write() -> None:
        with closing(scene.begin()) as program:
            assert isinstance(program, StoreProgram)
            for shard in program.db.shards:
                fresh[shard.number] = shard.log.next_sequence

    mended(write, scene.path / NAME, errors)
    kept = {
        place: payload
        for place, payload in book.kept.items()
        if place.sequence < covered[place.shard] or place in scene.older_book.kept
    }
    for place in [place for place in book.kept if place not in kept]:
        del book.kept[place]
    _write(scene, book)
    with closing(scene.begin()) as program:
        assert isinstance(program, StoreProgram)
        for shard in program.db.shards:
            require(fresh[shard.number] >= covered[shard.number], "sequences are given twice", shard.number)
            stop = covered[shard.number]
            found = [
                Found(Place(one.shard, one.sequence), one.payload)
                for one in program.db.scan(0, stop, shard=shard.number)
            ]
            book.check_some(found)
            missing = {place for place in kept if place.shard == shard.number and place.sequence < stop}
            missing -= {one.place for one in found}
            require(not missing, "records that are in chunks are lost", sorted(missing)[:5])
            new = [
                Found(Place(one.shard, one.sequence), one.payload)
                for one in program.db.scan(fresh[shard.number], shard=shard.number)
            ]
            book.check_some(new)
    return len(kept)


def _copy(scene: Scene) -> None:
    shutil.copytree(scene.path, newest_of(scene.path))


def _exchange(scene: Scene, name: "str | Path") -> None:
    """Put a part of the older copy in its place; what the older copy does not have is removed."""
    source, target = scene.older / name, scene.path / name
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        shutil.copy(source, target)


def _write(scene: Scene, book: Book) -> None:
    """Write some more to what is at the path."""
    with closing(scene.subject.begin(scene.path, book, scene.chance)) as program:
        for _ in range(scene.chance.randint(1, 6)):
            program.write()


# -- parts of a node -------------------------------------------------------------------------------------------------


def older_partition(scene: Scene, errors: Errors) -> int:
    """A partition is of an older copy, or gone: the parent log has it all."""
    del errors
    names = sorted(path.name for path in (scene.path / "partitions").iterdir())
    _exchange(scene, Path("partitions") / scene.chance.choice(names))
    _write(scene, scene.book)
    return scene.book.check(scene.subject.read(scene.path))


def older_parent(scene: Scene, errors: Errors) -> int:
    """The parent log is of an older copy: the node has promised more than it knows, and must not go on."""
    _exchange(scene, "parent")
    try:
        found = scene.subject.read(scene.path)
    except CorruptError as error:
        errors[type(error).__name__] += 1
        return 0
    return scene.book.check(found)


OF_NODES: Final[dict[str, Callable[[Scene, Errors], int]]] = {
    "older partition": older_partition,
    "older parent log": older_parent,
}
OF_LOGS: Final[dict[str, Callable[[Scene, Errors], int]]] = {
    "older manifest": older_manifest,
    "older copy over it": older_over_it,
    "older segments": older_segments,
    "manifest lost": no_manifest,
}
OF_STORES: Final[dict[str, Callable[[Scene, Errors], int]]] = {
    "older shards": older_shards,
    "shard lost": shard_gone,
    "older catalog": older_catalog,
}
CLOSED: Final[dict[str, Callable[[Scene, Errors], int]]] = {
    "closed, renamed": renamed,
    "closed, older copy": older,
    "closed, made anew": made_anew,
    **OF_LOGS,
    **OF_STORES,
    **OF_NODES,
}

__all__ = ["CLOSED", "OF_LOGS", "OF_NODES", "OF_STORES", "restored_older"]
