"""The gates in front of the routes: keys, their file, what a key may have, and web pages of other hosts."""

import asyncio
import json
import logging

import httpx
import pytest
from openai import AuthenticationError, OpenAI, RateLimitError
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from serve_app.access.keys import dump_key, new_key
from serve_app.config import SettingsError
from serve_app.engine.fake import FakeEngine
from serve_app.metrics import ACTIVE_REQUESTS, REFUSALS, SESSIONS_ENDED, UTTERANCES
from serve_app.server import access
from serve_app.server.access import KeysFile
from tests.asgi import http, turns_until, websocket
from tests.fakes import CountingRecorder, app_over
from tests.serving import served

HANG_S = 20
STREAM = "/invocations-bidirectional-stream"
HELLO = {"text": "Hello there."}
LOCKED = (("POST", "/invocations"), ("POST", "/v1/audio/speech"), ("GET", "/v1/audio/voices"), ("GET", "/v1/models"))


@pytest.fixture
def keys(tmp_path):
    """A file of keys, and the keys that its hashes are of."""

    class Keys:
        file = tmp_path / "keys"

        def __init__(self):
            self.alice, self.bob = new_key(), new_key()
            self.write(alice=self.alice, bob=self.bob)

        def write(self, **keys):
            self.file.write_text("".join(f"{dump_key(name, key)}\n" for name, key in keys.items()))

        def settings(self, **more):
            return {"keys_file": self.file, **more}

    return Keys()


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def answered(app, path, body=None, *, method="POST", **headers):
    """Status, headers and body of one request."""

    async def asked():
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        async with http(app, path, body, method=method, headers=raw) as exchange:
            return await exchange.response()

    return asyncio.run(asked())


def upgraded(app, **how):
    """What answers the request to open a session."""

    async def asked():
        async with websocket(app, STREAM, **how) as exchange:
            return await exchange.next()

    return asyncio.run(asked())


# Keys


@pytest.mark.parametrize(("method", "path"), LOCKED)
def test_every_route_that_speaks_or_lists_wants_a_key(keys, method, path):
    app = app_over(FakeEngine(), access=keys.settings())
    body = HELLO | {"input": "Hello there.", "model": "kokoro", "voice": "af_heart"}
    for headers in ({}, bearer(new_key()), {"authorization": "Basic abc"}):
        status, told, answer = answered(app, path, body, method=method, **headers)
        assert status == 401
        assert told["www-authenticate"] == "Bearer"
        error = json.loads(answer)
        assert (error["error"] if path.startswith("/v1/") else error)["code"] == "unauthorized"
    assert answered(app, path, body, method=method, **bearer(keys.alice))[0] == 200


def test_a_route_that_is_added_later_is_locked_without_anybody_thinking_of_it(keys):
    app = app_over(FakeEngine(), access=keys.settings())
    assert answered(app, "/metrics", method="GET")[0] == 401
    assert answered(app, "/page", method="GET")[0] == 401
    assert answered(app, "/ping/..", method="GET")[0] == 401
    assert answered(app, "/nowhere", method="GET", **bearer(keys.alice))[0] == 404


@pytest.mark.parametrize("path", ["/ping", "/", "/page/player.js"])
def test_the_state_of_the_server_and_its_page_are_open(keys, path):
    assert answered(app_over(FakeEngine(), access=keys.settings()), path, method="GET")[0] == 200


@pytest.mark.parametrize("how", ["header", "subprotocol"])
def test_a_session_opens_with_a_key_and_is_refused_before_the_upgrade_without_one(keys, how):
    app = app_over(FakeEngine(), access=keys.settings())

    def ask(key):
        if how == "header":
            return upgraded(app, headers=[(b"authorization", f"Bearer {key}".encode())])
        return upgraded(app, subprotocols=["speech", f"bearer.{key}"])

    opened = ask(keys.alice)
    assert opened["type"] == "websocket.accept"
    assert opened["subprotocol"] == ("speech" if how == "subprotocol" else None)
    for refused in (ask("kokoro_guessed"), upgraded(app), upgraded(app, subprotocols=["speech"])):
        assert (refused["type"], refused["status"]) == ("websocket.http.response.start", 401)


def test_without_a_file_of_keys_everybody_may_ask_also_with_a_key(keys):
    app = app_over(FakeEngine())
    assert answered(app, "/invocations", HELLO, **bearer("whatever"))[0] == 200
    assert upgraded(app, subprotocols=["speech", "bearer.whatever"])["subprotocol"] == "speech"
    assert upgraded(app)["subprotocol"] is None


def test_openais_client_with_its_api_key_speaks_and_with_another_is_told(keys):
    with served(app_over(FakeEngine(), access=keys.settings(characters_per_minute=10))) as url:

        def client(key):
            return OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=HANG_S)

        def speak(key):
            request = {"model": "tts-1", "voice": "af_heart", "input": "Hello there.", "response_format": "pcm"}
            return client(key).audio.speech.create(**request).content

        assert speak(keys.alice)
        with pytest.raises(AuthenticationError, match="not one of the server's"):
            speak("sk-guessed")
        with pytest.raises(RateLimitError, match="used up") as refused:
            speak(keys.alice)
        assert int(refused.value.response.headers["retry-after"]) in range(10, 14)
        assert speak(keys.bob)


def test_a_key_is_never_logged_and_its_name_is_with_every_utterance_and_session(keys, caplog):
    async def scenario():
        app = app_over(FakeEngine(), access=keys.settings())
        key = f"Bearer {keys.alice}".encode()
        async with websocket(app, STREAM, headers=[(b"authorization", key)]) as exchange:
            await exchange.next()
            exchange.say(HELLO)
            await exchange.until("synthesis_complete")
            exchange.say({"type": "close"})
            await exchange.ended()
        async with http(app, "/invocations", HELLO, headers=[(b"authorization", key)]) as exchange:
            await exchange.response()
            await exchange.ended()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())
    lines = [json.loads(record.message) for record in caplog.records if record.message.startswith("{")]
    assert [(line["event"], line["key"]) for line in lines] == [
        ("utterance", "alice"),
        ("session", "alice"),
        ("utterance", "alice"),
    ]
    assert keys.alice not in caplog.text


def test_strangers_are_counted_one_by_one_and_logged_once_a_minute_without_what_they_sent(keys, caplog):
    recorder = CountingRecorder()
    app = app_over(FakeEngine(), recorder, access=keys.settings())
    mistyped, page = f"{keys.alice}x", {"host": "speech.example.com", "origin": "https://evil.example"}
    for _ in range(3):
        assert answered(app, "/invocations", HELLO)[0] == 401
        assert answered(app, "/invocations", HELLO, **bearer(mistyped))[0] == 401
        assert upgraded(app, subprotocols=["speech", f"bearer.{mistyped}"])["status"] == 401
        assert answered(app, "/invocations", HELLO, **bearer(keys.alice), **page)[0] == 403
    assert [tags["reason"] for _, tags in recorder.values[REFUSALS.name]] == [
        *("unauthorized", "unauthorized", "unauthorized", "origin") * 3
    ]
    assert [json.loads(record.message) for record in caplog.records if record.levelname == "WARNING"] == [
        {"event": "denied", "reason": "unauthorized", "key": "none", "count": 1},
        {"event": "denied", "reason": "unauthorized", "key": "unknown", "count": 1},
        {"event": "denied", "reason": "origin", "count": 1},
    ]
    assert keys.alice not in caplog.text
    assert "evil" not in caplog.text


# The file


def test_an_edited_file_takes_effect_and_a_broken_one_keeps_the_keys_and_says_so(keys, caplog):
    file = KeysFile(keys.file)
    assert not file.look()
    keys.write(bob=keys.bob)
    assert file.look()
    assert (file.keys.find(keys.alice), file.keys.find(keys.bob).name) == (None, "bob")
    for broken in (b"alice: secret\n", b"\xff\xfe", b"", None):
        caplog.clear()
        if broken is None:
            keys.file.unlink()
        else:
            keys.file.write_bytes(broken)
        assert not file.look()
        assert not file.look()
        assert file.keys.find(keys.bob) is not None
        assert [record.levelname for record in caplog.records] == ["ERROR"]  # once
        assert "secret" not in caplog.text
    keys.write(alice=keys.alice)
    assert file.look()
    assert file.keys.find(keys.alice) is not None


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), (b"", "no key"), (b"x\n", "line 1")])
def test_a_server_does_not_start_with_keys_that_are_none(tmp_path, content, said):
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=f"access.keys_file.*{said}"):
        app_over(FakeEngine(), access={"keys_file": file})


def test_a_key_that_is_taken_back_ends_its_sessions_and_nobody_elses(keys, monkeypatch):
    monkeypatch.setattr(access, "LOOKS_EVERY_S", 0.01)
    recorder, engine = CountingRecorder(), FakeEngine(gated=True)
    with served(app_over(engine, recorder, access=keys.settings())) as url:

        def open_session(key):
            return connect(f"{url.replace('http', 'ws')}{STREAM}", additional_headers=bearer(key))

        with open_session(keys.alice) as speaking, open_session(keys.alice) as idle, open_session(keys.bob) as bob:
            speaking.send(json.dumps(HELLO | {"request_id": "in hand"}))
            speaking.send(json.dumps(HELLO | {"request_id": "waits"}))
            assert json.loads(speaking.recv(HANG_S))["type"] == "synthesis_start"
            keys.write(bob=keys.bob)
            told = [json.loads(speaking.recv(HANG_S)) for _ in range(2)]
            assert {(frame["request_id"], frame["code"]) for frame in told} == {
                ("in hand", "unauthorized"),
                ("waits", "unauthorized"),
            }
            assert json.loads(idle.recv(HANG_S))["code"] == "unauthorized"
            for session in (speaking, idle):
                with pytest.raises(ConnectionClosedError) as closed:
                    session.recv(HANG_S)
                assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "unauthorized")
            bob.send(json.dumps({"type": "ping"}))
            assert json.loads(bob.recv(HANG_S)) == {"type": "pong"}
            with pytest.raises(InvalidStatus) as refused:
                open_session(keys.alice)
            assert refused.value.response.status_code == 401
    assert recorder.outcomes(SESSIONS_ENDED).count("unauthorized") == 2
    assert recorder.outcomes(UTTERANCES) == ["unauthorized"]
    # What waits, who is idle, who comes again.
    assert [tags["reason"] for _, tags in recorder.values[REFUSALS.name]] == ["unauthorized"] * 3


def test_a_failure_while_keys_change_is_logged_once_and_the_change_is_told_all_the_same(keys, monkeypatch, caplog):
    monkeypatch.setattr(access, "LOOKS_EVERY_S", 0.0)
    file, told, tries = KeysFile(keys.file), asyncio.Event(), []

    def changed(ring):
        tries.append(ring)
        if len(tries) < 3:
            raise RuntimeError("a session that cannot be ended")
        told.set()

    async def scenario():
        watching = asyncio.create_task(file.watch(changed))
        keys.write(bob=keys.bob)
        async with asyncio.timeout(HANG_S):
            await told.wait()
        keys.write(alice=keys.alice)
        told.clear()
        async with asyncio.timeout(HANG_S):
            await told.wait()
        watching.cancel()

    asyncio.run(scenario())
    assert [ring.find(keys.bob) is not None for ring in tries] == [True, True, True, False]
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


# What a key may have


def test_characters_of_a_key_are_refused_before_the_first_byte_with_the_time_to_wait(keys):
    recorder = CountingRecorder()
    app = app_over(FakeEngine(), recorder, access=keys.settings(characters_per_minute=60))
    long = {"text": "Hello there. " * 10, "request_id": "long"}
    assert answered(app, "/invocations", long, **bearer(keys.alice))[0] == 200  # more than a minute's worth, and whole
    status, told, body = answered(app, "/invocations", HELLO | {"request_id": "r1"}, **bearer(keys.alice))
    assert (status, json.loads(body)["code"], json.loads(body)["request_id"]) == (429, "rate_limited", "r1")
    assert int(told["retry-after"]) in range(69, 72)  # what is spoken in 70 s was taken too much
    assert answered(app, "/invocations", HELLO, **bearer(keys.bob))[0] == 200
    assert recorder.values[REFUSALS.name] == [(1.0, {"reason": "key"})]


def test_over_the_websocket_a_refusal_is_an_error_frame_and_an_answer_that_is_being_written_goes_on(keys):
    async def scenario():
        app = app_over(FakeEngine(), access=keys.settings(characters_per_minute=20))
        headers = [(b"authorization", f"Bearer {keys.alice}".encode())]
        async with websocket(app, STREAM, headers=headers) as first, websocket(app, STREAM, headers=headers) as second:
            await first.next()
            await second.next()
            for sentence in ("This answer is longer than its key may have. ", "Still it is heard to its end. "):
                first.say({"type": "text_delta", "text": sentence, "request_id": "written"})
            first.say({"type": "text_end"})
            await first.until("synthesis_complete")
            for session in (first, second):
                session.say(HELLO | {"request_id": "refused"})
                refused, audio = await session.until("error")
                assert (refused["request_id"], refused["code"], audio) == ("refused", "rate_limited", b"")
                assert "retry in" in refused["message"]
                session.say({"type": "ping"})
                await session.until("pong")

    asyncio.run(scenario())


def test_sessions_of_a_key_are_bounded_and_there_is_room_when_one_ends(keys):
    async def scenario():
        recorder = CountingRecorder()
        app = app_over(FakeEngine(), recorder, access=keys.settings(sessions_per_key=1))

        def ask(key):
            return websocket(app, STREAM, headers=[(b"authorization", f"Bearer {key}".encode())])

        async with ask(keys.alice) as first:
            assert (await first.next())["type"] == "websocket.accept"
            async with ask(keys.alice) as second:
                status, headers, body = await second.response()
                assert (status, json.loads(body)["code"]) == (429, "too_many_sessions")
                assert "retry-after" not in headers
            async with ask(keys.bob) as other:
                assert (await other.next())["type"] == "websocket.accept"
            first.say({"type": "close"})
            await first.until("closed")
            await first.ended()
        async with ask(keys.alice) as again:
            assert (await again.next())["type"] == "websocket.accept"
        assert recorder.values[REFUSALS.name] == [(1.0, {"reason": "key"})]

    asyncio.run(scenario())


def test_requests_of_a_key_are_bounded_from_their_first_byte_and_there_is_room_when_one_is_answered(keys):
    async def scenario():
        recorder = CountingRecorder()
        app = app_over(FakeEngine(), recorder, access=keys.settings(requests_per_key=1))

        def ask(key, path="/invocations", **how):
            body = HELLO | {"input": "Hello there.", "model": "kokoro", "voice": "af_heart"}
            return http(app, path, body, headers=[(b"authorization", f"Bearer {key}".encode())], **how)

        async with ask(keys.alice, more_body=True) as slow:
            await turns_until(lambda: recorder.values.get(ACTIVE_REQUESTS.name))
            for path in ("/invocations", "/v1/audio/speech"):
                async with ask(keys.alice, path) as refused:
                    status, headers, body = await refused.response()
                error = json.loads(body)
                assert (status, headers["retry-after"]) == (429, "1")
                assert (error["error"] if path.startswith("/v1/") else error)["code"] == "rate_limited"
            async with ask(keys.bob) as other:
                assert (await other.response())[0] == 200
            slow.to_app.put_nowait({"type": "http.request", "body": b"", "more_body": False})
            assert (await slow.response())[0] == 200
            await slow.ended()
        async with ask(keys.alice) as again:
            assert (await again.response())[0] == 200
        assert recorder.values[REFUSALS.name] == [(1.0, {"reason": "key"})] * 2

    asyncio.run(scenario())


# Web pages

HOST, ELSEWHERE, APP = "speech.example.com", "https://evil.example", "https://app.example.com"


@pytest.mark.parametrize(("method", "path"), [*LOCKED, ("GET", "/ping"), ("OPTIONS", "/invocations")])
def test_a_page_of_another_host_is_refused_on_every_route(method, path):
    app = app_over(FakeEngine(), access={"allowed_origins": [APP]})
    status, headers, body = answered(app, path, HELLO, method=method, host=HOST, origin=ELSEWHERE)
    assert status == 403
    error = json.loads(body)
    assert (error["error"] if path.startswith("/v1/") else error)["code"] == "forbidden_origin"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("origin", "status"),
    [(None, None), (f"https://{HOST}", None), (f"http://{HOST}", None), (APP, None), (ELSEWHERE, 403), ("null", 403)],
)
def test_a_page_of_another_host_opens_no_session(origin, status):
    app = app_over(FakeEngine(), access={"allowed_origins": [APP]})
    headers = [(b"host", HOST.encode()), *([] if origin is None else [(b"origin", origin.encode())])]
    assert upgraded(app, headers=headers).get("status") == status


def test_an_allowed_page_may_read_the_answer_and_what_its_browser_asks_first_needs_no_key(keys):
    app = app_over(FakeEngine(), access=keys.settings(allowed_origins=[APP]))
    preflight = {"access_control_request_method": "POST", "access_control_request_headers": "authorization,x-some"}
    status, headers, _ = answered(app, "/invocations", method="OPTIONS", host=HOST, origin=APP, **preflight)
    assert (status, headers["access-control-allow-origin"]) == (200, APP)
    assert headers["access-control-allow-headers"] == "authorization,x-some"
    for key, expected in ((keys.alice, 200), ("guessed", 401)):
        status, headers, _ = answered(app, "/invocations", HELLO, host=HOST, origin=APP, **bearer(key))
        assert (status, headers["access-control-allow-origin"]) == (expected, APP)  # a page may read why, too
        assert "retry-after" in headers["access-control-expose-headers"]
    own = answered(app, "/invocations", HELLO, host=HOST, origin=f"https://{HOST}", **bearer(keys.alice))
    assert (own[0], "access-control-allow-origin" in own[1]) == (200, False)


def test_by_default_no_page_of_another_host_is_allowed_over_a_real_socket():
    with served(app_over(FakeEngine())) as url:
        stream = f"{url.replace('http', 'ws')}{STREAM}"
        with connect(stream, origin=url) as session:
            session.send(json.dumps({"type": "ping"}))
            assert json.loads(session.recv(HANG_S)) == {"type": "pong"}
        with pytest.raises(InvalidStatus) as refused:
            connect(stream, origin=ELSEWHERE)
        assert refused.value.response.status_code == 403
        assert json.loads(refused.value.response.body)["code"] == "forbidden_origin"
        simple = httpx.post(f"{url}/invocations", content=json.dumps(HELLO), headers={"origin": ELSEWHERE})
        assert simple.status_code == 403
