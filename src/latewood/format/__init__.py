"""Bytes to values and back.  No I/O here, and nobody else knows a byte layout."""
