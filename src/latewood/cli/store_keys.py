"""The keys of a store's chunks: which a database encrypts with, and what each is still needed for."""

from collections import Counter
from collections.abc import Callable, Sequence

from latewood.cli.store_argument import chosen_names
from latewood.runtime import Store

KEY_COLUMNS = ("database", "key_id", "is_current", "live_chunks", "replaced_chunks")


def key_setter(names: Sequence[str], key_id: str | None) -> Callable[[Store], None]:
    """Return what has databases encrypt with a key from now on; None: no more."""

    def set_keys(store: Store) -> None:
        for name in chosen_names(store, names):
            store.set_key(name, key_id)

    return set_keys


def key_rows(store: Store) -> list[tuple[object, ...]]:
    """Return the cells of KEY_COLUMNS for each database that a key was ever used for, as far as its rows remember.

    A key without chunks, that is not current, may be forgotten.
    """
    rows: list[tuple[object, ...]] = []
    for db_id, record in store.databases():
        encryption = record.options.encryption
        current = encryption.key_id if encryption else None
        chunks = [chunk for _, chunk in store.catalog.scan_chunks(db_id)]
        live = Counter(chunk.key_id for chunk in chunks if chunk.is_live)
        replaced = Counter(chunk.key_id for chunk in chunks if not chunk.is_live)
        found = sorted({current, *live, *replaced}, key=lambda key: (key != current, key or ""))
        if found != [None]:
            rows += [(record.name, key, key == current, live[key], replaced[key]) for key in found]
    return rows
