"""Trees of whole systems: copied, furnished with this machine's way to the network, and removed.

A tree in which something is mounted is never removed: the removal would go on in what is mounted there.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tools.fresh.environment import BUNDLE

_NETWORK_FILES: Final = (Path("/etc/resolv.conf"), Path("/etc/hosts"))
_MOUNT_INFO: Final = Path("/proc/self/mountinfo")
_MOUNT_POINT_FIELD: Final = 4
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class MountedError(RuntimeError):
    """Something is mounted in a tree that was to be removed."""


def copy_tree(source: Path, target: Path) -> None:
    """Copy a system, sharing its blocks where the file system can.

    It is no overlay: that renames, maps and syncs files in another way than the file systems that logs are kept on.
    """
    subprocess.run(["cp", "--archive", "--reflink=auto", source, target], check=True)


def furnish(root: Path, bundle: Path) -> None:
    """Give a system this machine's names of hosts and its trusted certificates; again after packages changed them."""
    for path in _NETWORK_FILES:
        _replace(path, _inside(root, path))
    if bundle.is_file():
        _replace(bundle, _inside(root, BUNDLE))


def remove_tree(root: Path) -> None:
    """Remove a system, if it is there.

    Raises:
        MountedError: something is mounted in it.
    """
    mounted = mounted_in(root.resolve(), _MOUNT_INFO.read_text())
    if mounted:
        raise MountedError(f"not removed, something is mounted in it: {', '.join(map(str, mounted))}")
    subprocess.run(["rm", "--recursive", "--force", "--one-file-system", root], check=True)


def mounted_in(root: Path, mount_info: str) -> list[Path]:
    """Return every mount point at `root` or below, of the lines of `/proc/self/mountinfo`."""
    fields = (line.split(" ")[_MOUNT_POINT_FIELD] for line in mount_info.splitlines())
    points = (Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), field)) for field in fields)
    return [point for point in points if point.is_relative_to(root)]


def _replace(source: Path, target: Path) -> None:
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # It may be a link that leads to this machine's own file.
        shutil.copyfile(source, target)


def _inside(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")
