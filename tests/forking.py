"""A fork as a user may do it: of a process that has threads, which Python 3.12 and later warn of."""

import os
import warnings


def fork() -> int:
    """Fork, though other threads run: what the child then can and cannot do is what is tested."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return os.fork()
