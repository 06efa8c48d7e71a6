"""Check a queue: its log, and its readers' positions."""

from latewood.errors import CorruptError, UnsupportedVersion
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.log.verify import Finding, Progress, Verification, verify_log
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
    for name in cursor_names(fs, layout.readers):
        path = cursor_path(layout.readers, name)
        try:
            load_cursor(fs, path)
        except CorruptError as error:
            remedy = f"`latewood readers seek` moves reader {name!r}, and `latewood readers rm` removes it"
            findings.append(Finding("damage", path, error.offset, error.reason, remedy))
        except UnsupportedVersion as error:
            findings.append(Finding("damage", path, 0, str(error), "upgrade Latewood"))
    return verification._replace(findings=findings)
