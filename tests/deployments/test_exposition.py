import asyncio

from serve_app.deployments.exposition import MetricsText
from tests.asgi import http

EXPOSITION = b"""# HELP ray_node_cpu_utilization Total CPU usage on a ray node
# TYPE ray_node_cpu_utilization gauge
ray_node_cpu_utilization{ip="127.0.0.1"} 3.0
# HELP ray_kokoro_utterances_total Utterances that ended, by outcome.
# TYPE ray_kokoro_utterances_total counter
ray_kokoro_utterances_total{outcome="complete"} 2.0
ray_serve_num_http_requests_total{method="GET"} 9.0
"""


def scraped(exposition):
    """What GET /metrics answers when the exporter answers with `exposition`; None: nobody listens there."""
    asked = []

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(exposition))
        writer.write(exposition)
        await writer.drain()
        writer.close()

    async def scenario():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if exposition is None:
            server.close()
            await server.wait_closed()

        def exporter():
            asked.append(port)
            return f"http://127.0.0.1:{port}/metrics"

        endpoint = MetricsText(exporter)
        async with server if exposition is not None else asyncio.TaskGroup():
            for _ in range(2):
                async with http(endpoint, "/metrics", method="GET") as exchange:
                    answer = await exchange.response()
        assert len(asked) == 1
        return answer

    return asyncio.run(scenario())


def test_the_products_metrics_alone_are_passed_on():
    status, headers, body = scraped(EXPOSITION)
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert body == b"".join(EXPOSITION.splitlines(keepends=True)[3:6])


def test_an_exporter_that_is_away_is_a_503():
    status, _, _ = scraped(None)
    assert status == 503
