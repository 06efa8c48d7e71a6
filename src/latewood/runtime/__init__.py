"""The composition root: a store, which alone knows every layer."""

from latewood.runtime.database import Database, ShardStats
from latewood.runtime.options import DatabaseOptions
from latewood.runtime.reader import DatabaseReader
from latewood.runtime.readers import ReaderPosition
from latewood.runtime.record import DatabaseRecord
from latewood.runtime.store import Store

__all__ = ["Database", "DatabaseOptions", "DatabaseReader", "DatabaseRecord", "ReaderPosition", "ShardStats", "Store"]
