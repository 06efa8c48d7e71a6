"""The `node.toml` of a command, checked together with the certificate that it names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latewood.errors import UsageError
from latewood.replica.config import NodeConfig, load_config
from latewood.replica.tls import check_is_of


def load_node(path: Path, changes: Mapping[str, Any] | None = None) -> NodeConfig:
    """Return what a node is told; `changes` are as in `load_config`.

    Raises:
        NotFoundError: there is no such file.
        UsageError: something in it is wrong, or the certificate is not this node's; the text says what to write.
    """
    config = load_config(path, changes)
    if config.tls is not None:
        try:
            check_is_of(config.tls, config.node_id)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
    return config
