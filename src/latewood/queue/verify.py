"""Check a queue: its log, and its readers' positions."""

from latewood.errors import CorruptError, UnsupportedVersion
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore
from latewood.log.verify import Finding, Progress, Verification, verify_log
from latewood.log.view import View
from latewood.queue.cursor import cursor_names, cursor_path, load_cursor


def verify_queue(
    fs: FileSystem, layout: Layout, *, deep: bool = False, progress: Progress | None = None
) -> Verification:
    """Check the log as `verify_log` does, and that every reader's position can be read.

    Raises:
        NotFoundError: there is no log.
    """
    verification = verify_log(fs, layout, deep=deep, progress=progress)
    findings = list(verification.findings)
    positions = {}
    for name in cursor_names(fs, layout.readers):
        path = cursor_path(layout.readers, name)
        try:
            cursor = load_cursor(fs, path)
            positions[name] = cursor.sequence if cursor else None
        except CorruptError as error:
            remedy = f"`latewood readers seek` moves reader {name!r}, and `latewood readers rm` removes it"
            findings.append(Finding("damage", path, error.offset, error.reason, remedy))
        except UnsupportedVersion as error:
            findings.append(Finding("damage", path, 0, str(error), "upgrade Latewood"))
    if verification.is_sound:
        findings += _ahead(fs, layout, positions)
    return verification._replace(findings=findings)


def _ahead(fs: FileSystem, layout: Layout, positions: dict[str, int | None]) -> list[Finding]:
    """Find readers that stand beyond the end of the log, as after an older copy of it was restored."""
    end = View(fs, layout, ManifestStore(fs, layout).load_while_written).end().sequence
    return [
        Finding(
            "damage",
            cursor_path(layout.readers, name),
            0,
            f"the reader stands at {sequence}, and the log ends at {end}",
            f"`latewood readers seek` moves reader {name!r}",
        )
        for name, sequence in positions.items()
        if sequence is not None and sequence > end
    ]
