"""Every path of a store, both ways.  Pure.

```
lake/
├── catalog.mdb             what the store knows
├── latewood.toml           settings
└── databases/
    └── 00000001-clicks/    one database
        ├── database.json   what it is, for when the catalog is lost
        ├── shards/00000/   one log for each shard
        ├── chunks/         Parquet files
        ├── readers/        positions of its named readers, one for each shard
        └── reports/        what scrubs found
```
"""

from pathlib import Path
from typing import Final, NamedTuple

from latewood.types import DbId

CATALOG_NAME: Final = "catalog.mdb"
SETTINGS_NAME: Final = "latewood.toml"
DATABASES_NAME: Final = "databases"
DESCRIPTION_NAME: Final = "database.json"


class StoreLayout(NamedTuple):
    """The files of one store."""

    root: Path

    @property
    def catalog(self) -> Path:
        """The LMDB database."""
        return self.root / CATALOG_NAME

    @property
    def settings(self) -> Path:
        """What a user has set."""
        return self.root / SETTINGS_NAME

    @property
    def databases(self) -> Path:
        """Where databases are."""
        return self.root / DATABASES_NAME

    def database(self, db_id: DbId, name: str) -> "DatabaseLayout":
        """Return the files of a new database."""
        return DatabaseLayout(self.databases / f"{db_id:08}-{name}")

    def located(self, wal_dir: str) -> "DatabaseLayout":
        """Return the files of a database whose logs are here, relative to the root."""
        return DatabaseLayout((self.root / wal_dir).parent)

    def relative(self, path: Path) -> str:
        """Return a path as the catalog stores it."""
        return path.relative_to(self.root).as_posix()


class DatabaseLayout(NamedTuple):
    """The files of one database."""

    root: Path

    @property
    def command_name(self) -> Path:
        """What commands call it: of `lake/databases/00000001-clicks`, lake/clicks."""
        return self.root.parent.parent / self.root.name.partition("-")[2]

    @property
    def shards(self) -> Path:
        """The directory of its logs."""
        return self.root / "shards"

    @property
    def chunks(self) -> Path:
        """The directory of its local chunks."""
        return self.root / "chunks"

    @property
    def readers(self) -> Path:
        """The directory of its readers."""
        return self.root / "readers"

    @property
    def description(self) -> Path:
        """What the database is, for when the catalog is lost."""
        return self.root / DESCRIPTION_NAME

    @property
    def reports(self) -> Path:
        """The directory of what scrubs found."""
        return self.root / "reports"

    def shard(self, number: int) -> Path:
        """Return the directory of one log."""
        return self.shards / f"{number:05}"

    def cursor(self, name: str, shard: int) -> Path:
        """Return the file with a reader's position in one shard."""
        return self.readers / name / f"{shard:05}.meta"

    def reader_lock(self, name: str) -> Path:
        """Return the lock file of a reader."""
        return self.readers / f"{name}.lock"


def is_store(root: Path) -> bool:
    """Say whether a directory looks like a store."""
    return (root / CATALOG_NAME).exists()
