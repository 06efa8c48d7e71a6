"""A node as a process: signals, the line that says that it serves, and how it ends."""

import asyncio
import gc
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from latewood.cli.errors import say
from latewood.cli.log_lines import log_instead
from latewood.cli.newcomer import check_may_join
from latewood.cli.node_file import load_node
from latewood.cli.output import write_json
from latewood.clock import SystemClock
from latewood.errors import CorruptError, Diverged, StrayLog, StrayRecord, UnavailableError
from latewood.fs import PosixFS
from latewood.replica.config import NodeConfig
from latewood.replica.event_loop import event_loop_factory
from latewood.replica.factory import load_factory
from latewood.replica.founding import is_node, join_node, replacement
from latewood.replica.machine import LogMachine, MachineFactory
from latewood.replica.metrics import serve_metrics
from latewood.replica.native import check_native
from latewood.replica.node import Node
from latewood.replica.recovery import NodeLayout

_HAND_OVER_S: Final = 2.0
_GARBAGE: Final = (50_000, 20, 50)
"""Entries are many and hold no cycles: looking for cycles among them would take a tenth of the time."""
_SWITCH_S: Final = 0.001
"""How long a thread may keep the interpreter while another waits: the storage thread must not wait for long."""


def run(path: Path, changes: Mapping[str, Any], *, join: bool, verbose: bool) -> int:
    """Run a node to its end."""
    config = load_node(path, changes)
    check_native()
    if verbose:
        log_instead()
    if join and not is_node(config, PosixFS()):
        check_may_join(config)
        join_node(config, PosixFS(), SystemClock())
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(*_GARBAGE)
    factory = load_factory(config.machine) if config.machine else LogMachine
    try:
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            return runner.run(_serve(config, factory))
    except CorruptError as error:
        _advise(error, config, path)
        raise


def _advise(error: CorruptError, config: NodeConfig, path: Path) -> None:
    """Have an error of a node say what helps, unless it knows better."""
    if "mend" in vars(error):
        return
    if isinstance(error, Diverged) and not isinstance(error, (StrayRecord, StrayLog)):
        error.mend = replacement(config)  # Each of its files is sound, so that a repair finds nothing.
    elif error.path.is_relative_to(NodeLayout(config.data).parent):
        error.mend = f"leave its files alone: `latewood cluster repair --config {path}` says how it is replaced"
    elif isinstance(error, Diverged):
        error.mend = f"another program put it there: `latewood cluster repair --config {path}` keeps what is the node's"
    else:  # Whatever else helps with a log, such as a rebuild: not with one of a node.
        error.mend = f"the others go on: `latewood cluster repair --config {path}` mends this node from them"


async def _serve(config: NodeConfig, factory: MachineFactory) -> int:
    node = Node(config, factory, clock=SystemClock())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = None
    try:
        try:
            port = await node.start()
        except OSError as taken:
            message = (
                f"cannot listen on {config.listen}: {taken.strerror or taken}; "
                "if another program has the port, --listen chooses another address"
            )
            raise UnavailableError(message) from taken
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
