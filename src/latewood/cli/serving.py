"""A node as a process: signals, the line that says that it serves, and how it ends."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from latewood.cli.errors import say
from latewood.cli.output import write_json
from latewood.clock import SystemClock
from latewood.fs import PosixFS
from latewood.replica.config import NodeConfig, load_config
from latewood.replica.founding import is_node, join_node
from latewood.replica.metrics import serve_metrics
from latewood.replica.node import Node

_HAND_OVER_S: Final = 2.0
_GARBAGE: Final = (50_000, 20, 50)
"""Entries are many and hold no cycles: looking for cycles among them would take a tenth of the time."""
_SWITCH_S: Final = 0.001
"""How long a thread may keep the interpreter while another waits: the storage thread must not wait for long."""


def run(path: Path, changes: Mapping[str, str], *, join: bool, verbose: bool) -> int:
    """Run a node to its end."""
    config = load_config(path, changes)
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    if join and not is_node(config, PosixFS()):
        join_node(config, PosixFS())
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(*_GARBAGE)
    return asyncio.run(_serve(config))


async def _serve(config: NodeConfig) -> int:
    node = Node(config, clock=SystemClock())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = None
    try:
        port = await node.start()
        server = await serve_metrics(node, config.metrics) if config.metrics else None
        write_json({"node_id": config.node_id, "cluster_id": config.cluster_id, "port": port}, pretty=False)
        node.stopped.add_done_callback(lambda _: stop.set())
        await stop.wait()
        if node.stopped.done():
            error = node.stopped.result()
            if error is not None:
                raise error
        say("stopping")
        await node.hand_over(_HAND_OVER_S)
    finally:
        if server is not None:
            server.close()
        await node.close()
    return 0
