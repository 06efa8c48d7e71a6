"""Sealed records as Parquet chunks, and the tiers that chunks move through.

Re-exports nothing: names, tiers and transfers load without pyarrow, and chunks without an object store's client.
"""
