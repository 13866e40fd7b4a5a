"""The load test against the product's routes over a fake engine, and against servers that break."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
from pyarrow import parquet
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from scripts.baseline_server import create_app
from scripts.capacity.ladder import read_ladder
from scripts.loadtest.__main__ import arguments, main
from scripts.loadtest.arrivals import Session, closed_loop
from scripts.loadtest.client import BYTES_PER_S, ROUTES, Manner, Server, clock_s
from scripts.loadtest.rounds import Load, alternate, run_round
from scripts.loadtest.speech import as_tokens, script
from scripts.loadtest.stats import Outcome
from scripts.running import bare_running, free_port
from tests.serving import served

SOCKETS = [route for route in ROUTES if route.startswith("websocket")]
MANNER = Manner(tokens_per_s=1000.0, patience_s=20.0)
PEDANTIC_S = 0.2
"""The patience of a client towards a server that says nothing at all."""

SECOND = bytes(BYTES_PER_S)


def load(**changes) -> Load:
    return Load(**{"sentences": 3, "listening": False, "seed": 0, "ends_at_s": clock_s() + 60.0, **changes})


ONE_ANSWER = (Session(0.0),)


async def asked(url, route, sessions=ONE_ANSWER, manner=MANNER, **changes):
    server = Server("server", url, manner)
    try:
        return await run_round(server, route, 0, sessions, load(**changes))
    finally:
        await server.aclose()


def ask(*given, **changes):
    return asyncio.run(asked(*given, **changes))


@pytest.fixture(scope="module")
def product() -> Iterator[str]:
    with bare_running() as running:
        yield running.http


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_brings_whole_answers(product, route):
    answers = ask(product, route, closed_loop(2, 4))
    assert [one.reason for one in answers] == [""] * 4
    assert {(one.session, one.number) for one in answers} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    for one in answers:
        text = script(3, f"0/0/{one.session}/{one.number}").text
        assert (one.characters, one.sentences) == (len(text), 3)
        assert one.audio_s == pytest.approx(0.025 * len(text), rel=0.2)  # a phoneme a character, and pads
        assert 0 < one.ttfa_s <= one.last_audio_s <= one.ended_s
        assert (one.connect_s > 0) == (route in SOCKETS and one.number == 0)


def test_an_answer_can_be_heard_before_it_is_written(product):
    slow = Manner(tokens_per_s=80.0, patience_s=20.0)
    [answer] = ask(product, "websocket-tokens", manner=slow, sentences=6)
    written_s, _ = as_tokens(script(6, "0/0/0/0"), slow.tokens_per_s, "").messages[-1]
    assert answer.outcome is Outcome.COMPLETE
    assert answer.ttfa_s < written_s < answer.last_audio_s


def test_a_listening_session_asks_again_when_it_has_heard_the_last_answer(product):
    first, second = ask(product, "invocations", [Session(0.0, 2)], listening=True, sentences=1)
    assert second.began_s >= first.began_s + first.ttfa_s + first.audio_s


def test_what_is_in_work_when_the_time_is_over_is_given_up_and_told(product):
    slow = Manner(tokens_per_s=0.5, patience_s=20.0)
    [answer] = ask(product, "websocket-sentences", manner=slow, ends_at_s=clock_s() + 0.3)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, "the load test's time was over")
    assert ask(product, "invocations", ends_at_s=clock_s()) == []


async def left(request) -> Response:
    """Say nothing until the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response()


async def cut_body():
    yield SECOND
    raise ConnectionError


def of_type(kind, *pieces):
    return StreamingResponse(iter(pieces), media_type=kind)


HTTP_FAULTS = {
    "refuses": (lambda: Response(status_code=503, headers={"Retry-After": "2"}), Outcome.REFUSED, "status 503"),
    "fails": (lambda: Response(status_code=500), Outcome.FAILED, "status 500"),
    "cuts": (lambda: StreamingResponse(cut_body(), media_type="audio/pcm"), Outcome.CUT, "the connection broke"),
    "empty": (lambda: of_type("audio/pcm"), Outcome.FAILED, "complete without audio"),
    "short": (lambda: of_type("audio/pcm", SECOND), Outcome.CUT, "complete with too little audio"),
    "other": (lambda: of_type("text/html", b"sign in"), Outcome.FAILED, "answered with text/html"),
}


async def complete(socket, audio_s):
    await socket.send_json({"type": "synthesis_complete", "request_id": "x", "total_duration_s": audio_s})


async def closing(socket):
    await socket.send_bytes(SECOND)
    await socket.close(1011)


async def error(socket, code="queue_saturated"):
    await socket.send_json({"type": "error", "request_id": "x", "message": "no", "code": code})


async def internal(socket):
    await error(socket, "internal")


async def late_error(socket):
    await socket.send_bytes(SECOND)
    await error(socket)


async def lossy(socket):
    await socket.send_bytes(SECOND)
    await complete(socket, 30.0)


async def mute(socket):
    await complete(socket, 0.0)


async def busy(socket):
    await socket.close(1013)


async def garbled(socket):
    await socket.send_text('{"type": "synthesis_complete"}')


async def silent(socket):
    await socket.receive()


SOCKET_FAULTS = {
    "closing": (closing, Outcome.CUT, "closed with 1011"),
    "error": (error, Outcome.REFUSED, "queue_saturated"),
    "internal": (internal, Outcome.FAILED, "internal"),
    "late_error": (late_error, Outcome.CUT, "queue_saturated"),
    "lossy": (lossy, Outcome.CUT, "audio is missing"),
    "mute": (mute, Outcome.FAILED, "complete without audio"),
    "busy": (busy, Outcome.REFUSED, "closed with 1013"),
    "garbled": (garbled, Outcome.FAILED, "a control frame is not the contract's"),
}


@pytest.fixture(scope="module")
def broken() -> Iterator[str]:
    """A server a fault, each below a path of its own."""

    async def http(request):
        fault = request.path_params["fault"]
        return await left(request) if fault == "silent" else HTTP_FAULTS[fault][0]()

    async def socket(socket):
        fault = socket.path_params["fault"]
        if fault == "full":
            await socket.send_denial_response(Response(status_code=503, headers={"Retry-After": "3"}))
            return
        await socket.accept()
        await socket.receive()
        await (silent if fault == "silent" else SOCKET_FAULTS[fault][0])(socket)
        with suppress(Exception):  # stay until the client has gone
            while (await socket.receive())["type"] != "websocket.disconnect":
                pass

    routes = [
        Route("/{fault}/invocations", http, methods=["POST"]),
        WebSocketRoute("/{fault}/invocations-bidirectional-stream", socket),
    ]
    with served(Starlette(routes=routes)) as url:
        yield url


@pytest.mark.parametrize("fault", HTTP_FAULTS)
def test_a_broken_answer_over_http_is_told_by_what_its_listener_heard(broken, fault):
    [answer] = ask(f"{broken}/{fault}", "invocations")
    assert (answer.outcome, answer.reason) == HTTP_FAULTS[fault][1:]
    assert answer.retry_after_s == (2.0 if fault == "refuses" else None)


@pytest.mark.parametrize("fault", SOCKET_FAULTS)
def test_a_broken_answer_over_a_websocket_is_told_by_what_its_listener_heard(broken, fault):
    [answer] = ask(f"{broken}/{fault}", "websocket-text")
    assert (answer.outcome, answer.reason) == SOCKET_FAULTS[fault][1:]


def test_an_upgrade_that_is_refused_is_a_refusal(broken):
    [answer] = ask(f"{broken}/full", "websocket-sentences")
    assert (answer.outcome, answer.reason, answer.retry_after_s) == (Outcome.REFUSED, "status 503", 3.0)


@pytest.mark.parametrize("route", ["invocations", "websocket-text"])
def test_a_server_that_says_nothing_is_given_up(broken, route):
    [answer] = ask(f"{broken}/silent", route, manner=Manner(1000.0, PEDANTIC_S))
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, "nothing came for too long")


@pytest.mark.parametrize("route", ["invocations", "websocket-text"])
def test_a_server_that_is_not_there_is_told(route):
    [answer] = ask(f"http://127.0.0.1:{free_port()}", route)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, "no connection")


def test_a_session_goes_on_over_a_new_connection_after_a_failure(broken):
    answers = ask(f"{broken}/closing", "websocket-text", [Session(0.0, 2)])
    assert [one.reason for one in answers] == ["closed with 1011"] * 2
    assert all(one.connect_s > 0 for one in answers)


def test_servers_take_turns_with_the_same_texts_and_each_begins_in_its_turn():
    said: list[tuple[str, str]] = []

    def app(name):
        def speak(text):
            said.append((name, text))
            yield SECOND * 10

        return create_app(speak)

    async def both(first, second):
        servers = [Server("first", first, MANNER), Server("second", second, MANNER)]
        rounds = alternate(servers, ["invocations", "websocket-text"], 2, lambda _: closed_loop(1, 1), load())
        turns = [(one.server, one.route, one.round) async for turn in rounds for one in turn]
        for server in servers:
            await server.aclose()
        return turns

    with served(app("first")) as first, served(app("second")) as second:
        turns = asyncio.run(both(first, second))
    assert turns == [
        (server, route, number)
        for number, order in enumerate((("first", "second"), ("second", "first")))
        for route in ("invocations", "websocket-text")
        for server in order
    ]
    assert [name for name, _ in said] == [server for server, _, _ in turns]
    texts = [text for _, text in said]
    assert texts[0] == texts[1] == texts[2] == texts[3] != texts[4] == texts[5] == texts[6] == texts[7]


def test_the_command_tells_failures_first_and_keeps_every_answer(product, broken, tmp_path, capsys):
    rows, plot = tmp_path / "answers.parquet", tmp_path / "answers.png"
    command = (
        f"--server ours={product} --against bad={broken}/cuts --route invocations --sessions 2 --rounds 2 "
        f"--sentences 2 --tokens-per-s 1000 --warm-up 1 --parquet {rows} --plot {plot}"
    )
    assert main(command.split()) == 0  # it is the other server that fails
    out, err = capsys.readouterr()
    assert "warm-up of bad, invocations: cut: the connection broke" in err
    assert "| bad | invocations | 4 | 0 | 0 | 4 |" in out
    assert "- bad, invocations: 4 cut: the connection broke" in out
    assert out.index("4 cut") < out.index("TTFA p50")
    table = parquet.read_table(rows)
    assert [one["outcome"] for one in table.to_pylist() if one["server"] == "ours"] == ["complete"] * 4
    assert table.num_rows == 8
    assert command in table.schema.metadata[b"run"].decode()
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_failed_answer_of_the_first_server_is_the_commands_status(broken, capsys):
    assert main(f"--server {broken}/refuses --route invocations --sessions 3 --rounds 1 --warm-up 0".split()) == 1
    assert "| server | invocations | 3 | 0 | 3 | 0 |" in capsys.readouterr().out


def test_open_arrivals_are_sessions_of_one_answer(product, tmp_path, capsys):
    rows = tmp_path / "answers.parquet"
    command = f"--server {product} --rate 100 --answers 5 --rounds 1 --warm-up 0 --tokens-per-s 1000 --parquet {rows}"
    assert main(command.split()) == 0
    assert [one["number"] for one in parquet.read_table(rows).to_pylist()] == [0] * 5


def test_the_ladder_is_what_the_capacity_plan_reads(product, tmp_path, capsys):
    ladder, plot = tmp_path / "ladder.parquet", tmp_path / "ladder.png"
    command = (
        f"--server {product} --ladder {ladder} --route invocations --most 3 --answers 4 --promise-s 30 --sentences 1 "
        f"--warm-up 0 --plot {plot}"
    )
    assert main(command.split()) == 0
    assert "q_max: 3 sessions within 30 s and without a gap, the most that was tried" in capsys.readouterr().out
    assert [rung.concurrency for rung in read_ladder(ladder)] == [1, 2, 3]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_ladder_that_breaks_on_its_first_rung_carries_nobody(broken, tmp_path, capsys):
    ladder = tmp_path / "ladder.parquet"
    assert main(f"--server {broken}/fails --ladder {ladder} --route invocations --answers 2 --warm-up 0".split()) == 1
    assert "q_max: none" in capsys.readouterr().out
    [rung] = read_ladder(ladder)
    assert (rung.concurrency, rung.errors) == (1, 2)


def test_idle_sessions_are_counted_and_their_cost_is_the_servers(product, capsys):
    assert main(f"--server {product} --idle 30 --idle-for-s 0.1".split()) == 0
    out = capsys.readouterr().out
    assert "sessions wanted: 30, open to the end: 30" in out
    assert "kB a session" in out


def test_sessions_that_are_refused_are_told_before_what_the_others_cost(broken, capsys):
    assert main(f"--server {broken}/full --idle 3 --idle-for-s 0.1".split()) == 1
    out = capsys.readouterr().out
    assert "sessions wanted: 3, open to the end: 0\n- 3: status 503" in out


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("--server 127.0.0.1:8000", "is not http://HOST:PORT"),
        ("--against http://127.0.0.1:1", "is not NAME=URL"),
        ("--against server=http://127.0.0.1:1", "a name of its own"),
        ("--ladder x --against other=http://127.0.0.1:1", "one server and one route"),
        ("--sessions 0", "a number of 1 or more"),
        ("--rate -1", "not above 0"),
        ("--sessions 2 --rate 1", "not allowed with"),
    ],
)
def test_a_command_that_makes_no_sense_ends_with_a_sentence(command, says, capsys):
    with pytest.raises(SystemExit):
        arguments(command.split())
    assert says in capsys.readouterr().err


def test_idle_wants_a_server_of_this_machine(capsys):
    assert main(f"--server http://127.0.0.1:{free_port()} --idle 2".split()) == 2
    assert "no process of this machine listens" in capsys.readouterr().err
