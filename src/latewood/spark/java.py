"""Which Java there is."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

OLDEST: Final = 17
"""What Spark 4 runs on."""
SHIM: Final = """#!/bin/sh
for argument do
    shift
    case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""
"""Starts a Java that lacks the module that Spark adds."""

_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_WAIT_S: Final = 30


def java_home() -> str | None:
    """Return where Java is: JAVA_HOME if it has one, else that of the path."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return home
    found = shutil.which("java")
    return str(Path(found).resolve().parent.parent) if found else None


def java_version(home: str) -> int | None:
    """Return the version of a Java, or None if it does not say."""
    try:
        result = subprocess.run(  # noqa: S603 - the Java that Spark would start
            [str(Path(home) / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=_WAIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(result.stderr + result.stdout)


def parse_version(text: str) -> int | None:
    """Return the version that `java -version` prints; 8 was called 1.8."""
    match = _VERSION.search(text)
    if match is None:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])
