"""The LMDB database of a store: every durable fact, behind one typed door.  The only package that imports lmdb."""

from latewood.catalog import tables
from latewood.catalog.catalog import Catalog, Mode
from latewood.catalog.changes import ChangeEntry
from latewood.catalog.check import CheckReport, Problem, check_file
from latewood.catalog.commit import CommitReceipt
from latewood.catalog.gate import Lease, UniqueJobGate, repair_of
from latewood.catalog.ops import Op, RequireGeneration, RequireRecord
from latewood.catalog.options import CatalogOptions
from latewood.catalog.recovery import ChunkInventory, Compensation, RecoveryReport, recover
from latewood.catalog.txn import CatalogTxn
from latewood.catalog.view import CatalogView
from latewood.catalog.waiting import WaitHandle

__all__ = [
    "Catalog",
    "CatalogOptions",
    "CatalogTxn",
    "CatalogView",
    "ChangeEntry",
    "CheckReport",
    "ChunkInventory",
    "CommitReceipt",
    "Compensation",
    "Lease",
    "Mode",
    "Op",
    "Problem",
    "RecoveryReport",
    "RequireGeneration",
    "RequireRecord",
    "UniqueJobGate",
    "WaitHandle",
    "check_file",
    "recover",
    "repair_of",
    "tables",
]
