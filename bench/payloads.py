"""What is written: random bytes, so that nothing compresses, and always the same, so that runs compare."""

import random
from typing import Final

BATCH: Final = 1000


def payloads(payload_bytes: int) -> list[bytes]:
    """Return a batch of payloads of one size."""
    source = random.Random(payload_bytes)
    return [source.randbytes(payload_bytes) for _ in range(BATCH)]
