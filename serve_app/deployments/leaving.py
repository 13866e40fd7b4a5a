"""How a gateway replica that Serve stops ends its sessions: they finish the message in hand, as its requests do.

Ray Serve 2.60 tells an application nothing when it stops a replica. It waits for what is open, which a session may be
for hours, and then ends the process; behind HAProxy it has the replica's own server exit first (its WebSockets stay
open all the same: serve_app/deployments/sockets.py). It has no setting for it, so a method is replaced in the replica's
process. tests/running/test_changes.py looks at what really happens.
"""

import asyncio
from collections.abc import Callable

from ray.serve._private import replica

UNROUTED_AFTER_S = 1.0
"""From the order to stop until nothing new comes: the server has closed its listener, proxies have other replicas."""


def leave_when_stopped(leave: Callable[[], None]) -> None:
    """Have `leave` called soon after Serve has told this replica to stop. Call it while the replica is constructed."""
    stop = replica.Replica.perform_graceful_shutdown

    async def stop_and_leave(self: replica.Replica) -> None:
        asyncio.get_running_loop().call_later(UNROUTED_AFTER_S, leave)
        await stop(self)

    replica.Replica.perform_graceful_shutdown = stop_and_leave
