"""The agent's two routes, over ASGI and over real sockets."""

import asyncio
import json

import httpx
import pytest

from agent.app import Activity, create_app
from agent.reader import ReaderModel
from agent.settings import load_settings
from serve_app.errors import BadRequest
from serve_app.protocol.sse import SseDecoder
from tests.agent.fakes import FakeSpeech, ScriptedModel
from tests.asgi import http, turns_until
from tests.serving import served

pytestmark = pytest.mark.anyio

SESSION = b"x-amzn-bedrock-agentcore-runtime-session-id"


def settings(**fields):
    return load_settings({}, fields, local=True)


def app_of(model, speech=None, **fields):
    return create_app(settings(**fields), model, speech or (lambda _: FakeSpeech()))


def events_in(body):
    decoder = SseDecoder()
    events = [event.json() for event in decoder.feed(body)]
    assert not decoder.close()
    return events


async def call(app, payload, headers=()):
    async with http(app, "/invocations", payload, headers=headers) as exchange:
        status, head, body = await exchange.response()
        await exchange.ended()
    return status, head, body


async def ping(app):
    async with http(app, "/ping", method="GET") as exchange:
        return json.loads((await exchange.response())[2])


async def test_a_turn_is_a_stream_of_server_sent_events():
    status, head, body = await call(app_of(ScriptedModel(["Hi."])), {"prompt": "Hello"})
    assert (status, head["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert [event["type"] for event in events_in(body)][-1] == "agent_end"


@pytest.mark.parametrize("payload", [{"prompt": " \n"}, {}, [], "Hi", {"prompt": "Hi", "mode": "x"}])
async def test_a_bad_payload_costs_neither_a_model_nor_a_speech_call(payload):
    model, speech = ScriptedModel(), FakeSpeech()
    status, _, body = await call(app_of(model, lambda _: speech), payload)
    assert status == 400
    assert json.loads(body).keys() == {"error", "code", "request_id"}
    assert (model.asked, speech.connected) == ([], False)


async def test_a_body_that_is_not_json_is_refused():
    status, _, body = await call(app_of(ScriptedModel()), b"{nope")
    assert (status, json.loads(body)["error"]) == (400, "Invalid JSON")


async def test_an_endpoint_that_may_not_be_asked_is_refused_before_the_stream():
    def refuse(_):
        raise BadRequest("endpoint must be the one that the agent is set to use")

    status, _, body = await call(app_of(ScriptedModel(), refuse), {"prompt": "Hi", "endpoint": "http://10.0.0.1"})
    assert (status, json.loads(body)["code"]) == (400, "bad_request")


async def test_a_session_is_one_conversation_and_others_know_nothing_of_it():
    model = ScriptedModel(["One."], ["Two."], ["Three."], ["Four."])
    app = app_of(model)
    ours, theirs = [(SESSION, b"a" * 40)], [(SESSION, b"b" * 40)]
    for headers in (ours, ours, theirs, ()):
        await call(app, {"prompt": "Hi"}, headers)
    assert [len(messages) for messages in model.asked] == [1, 3, 1, 1]


async def test_the_conversation_that_was_not_used_for_longest_is_forgotten_first():
    model = ScriptedModel(*([["Yes."]] * 5))
    app = app_of(model, max_conversations=2)
    for session in (b"a", b"b", b"a", b"c", b"b"):
        await call(app, {"prompt": "Hi"}, [(SESSION, session * 40)])
    assert [len(messages) for messages in model.asked] == [1, 1, 3, 1, 1]


async def test_a_caller_who_hangs_up_stops_a_silent_model_at_once():
    model, speech = ScriptedModel([asyncio.Event()]), FakeSpeech()
    app = app_of(model, lambda _: speech)
    async with http(app, "/invocations", {"prompt": "Hi"}) as exchange:
        await exchange.next()
        await turns_until(model.waiting.is_set)
        exchange.to_app.put_nowait({"type": "http.disconnect"})
        await exchange.ended()
    assert (model.closed, speech.left) == (1, True)


async def test_ping_tells_whether_a_turn_goes_on_and_since_when():
    clock = iter([10.9, 20.9, 30.9]).__next__
    activity = Activity(clock)
    assert activity.state() == {"status": "Healthy", "time_of_last_update": 10}
    with activity:
        assert activity.state() == {"status": "HealthyBusy", "time_of_last_update": 20}
        with activity:
            pass
        assert activity.state() == {"status": "HealthyBusy", "time_of_last_update": 20}
    assert activity.state() == {"status": "Healthy", "time_of_last_update": 30}


async def test_ping_is_busy_during_a_turn_and_not_after_a_hang_up():
    model = ScriptedModel([asyncio.Event()])
    app = app_of(model)
    assert (await ping(app))["status"] == "Healthy"
    async with http(app, "/invocations", {"prompt": "Hi"}) as exchange:
        await exchange.next()
        await turns_until(model.waiting.is_set)
        assert (await ping(app))["status"] == "HealthyBusy"
        exchange.to_app.put_nowait({"type": "http.disconnect"})
        await exchange.ended()
    assert (await ping(app))["status"] == "Healthy"


@pytest.mark.parametrize(
    ("origin", "status"),
    [(b"http://127.0.0.1:8000", 200), (b"https://elsewhere.example", 403), (b"null", 403)],
)
async def test_only_the_pages_that_are_allowed_may_talk(origin, status):
    model = ScriptedModel(["Hi."])
    answer = await call(app_of(model), {"prompt": "Hi"}, [(b"origin", origin), (b"content-type", b"text/plain")])
    assert answer[0] == status
    assert len(model.asked) == (status == 200)


async def test_a_browser_is_told_that_it_may_send_the_session_header():
    headers = [
        (b"origin", b"http://localhost:8000"),
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", b"content-type," + SESSION),
    ]
    async with http(app_of(ScriptedModel()), "/invocations", method="OPTIONS", headers=headers) as exchange:
        status, head, _ = await exchange.response()
    assert status == 200
    assert head["access-control-allow-origin"] == "http://localhost:8000"


async def test_no_text_and_no_traceback_in_the_logs_of_what_fails_for_a_reason(caplog):
    def refuse(_):
        speech = FakeSpeech(fail_at=0)
        return speech

    await call(app_of(ScriptedModel(["A private matter. "]), refuse), {"prompt": "My secret"})
    assert "private" not in caplog.text
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_sixty_streams_at_once_are_each_whole_and_ping_answers_between_them():
    app = app_of(ReaderModel("One is short. Two is longer than one. Three ends it.", tokens_per_second=200))
    with served(app) as url:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=60) as client:

            async def one(number):
                answer = await client.post(f"{url}/invocations", json={"prompt": "Hi", "request_id": f"r{number}"})
                return events_in(answer.content)

            streams = asyncio.gather(*(one(number) for number in range(60)))
            pinged = await client.get(f"{url}/ping")
            assert pinged.status_code == 200
            for number, events in enumerate(await streams):
                assert {event["request_id"] for event in events} == {f"r{number}"}
                assert [event["type"] for event in events][-2:] == ["audio_stream_end", "agent_end"]
                assert [event["seq"] for event in events if event["type"] == "audio_chunk"] == list(range(6))


async def test_a_real_socket_that_closes_in_the_middle_frees_everything():
    gate = asyncio.Event()
    model, speech = ScriptedModel(["One. Two", gate]), FakeSpeech()
    with served(app_of(model, lambda _: speech)) as url:
        async with httpx.AsyncClient() as client:
            async with client.stream("POST", f"{url}/invocations", json={"prompt": "Hi"}) as answer:
                async for data in answer.aiter_bytes():
                    if b"audio_chunk" in data:
                        break
            async with asyncio.timeout(10):
                while (await client.get(f"{url}/ping")).json()["status"] != "Healthy":
                    pass
    assert (model.closed, speech.left) == (1, True)
