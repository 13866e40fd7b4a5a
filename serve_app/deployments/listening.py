"""Where a replica listens for the calls of other replicas."""

import ray
from ray._common.network_utils import build_address
from ray._common.tls_utils import add_port_to_grpc_server
from ray.serve._private import replica


def listen_on_node_address() -> None:
    """Have this replica listen on its node's own address: loopback, where there is no cluster. Call it while the
    replica is constructed.

    Ray 2.60 says "every interface" there, and has no setting for it; what listens there unpickles what it is sent by
    whoever has the cluster's token. tests/running/test_security.py looks at what really listens.
    """

    def on_node_address(server: object, _everywhere: str) -> int:
        port: int = add_port_to_grpc_server(server, build_address(ray.util.get_node_ip_address(), 0))
        return port

    replica.add_port_to_grpc_server = on_node_address
