"""`python bench/log.py`: one table of what the log can do, against its peers and the limits of this machine.

How to read it: bench/README.md.
"""

import sys
from pathlib import Path

if not __package__:  # Run as a script: its folder's modules have one name, here and in the workers.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.claims import claims
from bench.runner import main

if __name__ == "__main__":
    sys.exit(main(claims, (__doc__ or "").splitlines()[0]))
