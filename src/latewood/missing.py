"""What a held directory has lost, and the advice for each case: the last part of the text of `DirectoryReplaced`."""

from typing import Final, Literal

Missing = Literal["another", "directory", "lock", "segment", "catalog"]
"""What is gone.  With "another" it is only the directory that was opened: another one is in its place."""

MISSING_MENDS: Final[dict[Missing, str]] = {
    "another": "put back the one that was opened, or open it where it is now",
    "directory": "put it back or open it where it is now, if it was moved; restore a backup or begin anew, if not",
    "lock": "open it again",
    "segment": "put that back, or restore a backup; or move what is left away, to begin anew",
    "catalog": "put the one that was opened back, or close this program, and `latewood rebuild --catalog {path}` makes "
    "it again",
}
