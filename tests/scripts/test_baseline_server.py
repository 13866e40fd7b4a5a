"""The yardstick's routes, over a pipeline of tones; the official one is heard in tests/running/test_load.py."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from websockets.sync.client import connect

from scripts.baseline_server import create_app
from tests.serving import served

HANG_S = 20.0


class Pipeline:
    """A second of silence a sentence; remembers whose turn it was."""

    def __init__(self) -> None:
        self.spoken: list[str] = []

    def __call__(self, text: str) -> Iterator[bytes]:
        for sentence in text.split("."):
            self.spoken.append(sentence)
            yield bytes(48_000)


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


@pytest.fixture
def url(pipeline) -> Iterator[str]:
    with served(create_app(pipeline)) as url:
        yield url


def test_it_is_ready_and_streams_pcm(url):
    assert httpx.get(f"{url}/ping").json() == {"status": "ok"}
    answer = httpx.post(f"{url}/invocations", json={"text": "One.Two"}, timeout=HANG_S)
    assert answer.headers["content-type"] == "audio/pcm;rate=24000"
    assert len(answer.content) == 96_000


def test_one_text_is_spoken_after_the_other(url, pipeline):
    texts = [".".join([name] * 20) for name in ("a", "b", "c")]
    with ThreadPoolExecutor(len(texts)) as pool:
        answers = list(pool.map(lambda text: httpx.post(f"{url}/invocations", json={"text": text}).content, texts))
    assert [len(answer) for answer in answers] == [20 * 48_000] * 3
    assert len({tuple(pipeline.spoken[start : start + 20]) for start in (0, 20, 40)}) == 3
    assert all(len(set(pipeline.spoken[start : start + 20])) == 1 for start in (0, 20, 40))


@pytest.mark.parametrize("frame", [str, str.encode])
def test_a_session_answers_each_message_with_start_audio_and_complete(url, frame):
    with connect(f"{url.replace('http', 'ws')}/invocations-bidirectional-stream") as socket:
        for number in range(2):
            socket.send(frame(json.dumps({"text": "One.Two", "request_id": f"r{number}"})))
        for number in range(2):
            start, first, second, complete = (socket.recv(HANG_S) for _ in range(4))
            assert json.loads(start) == {"type": "synthesis_start", "request_id": f"r{number}"}
            assert len(first) == len(second) == 48_000
            assert json.loads(complete) | {"elapsed_s": 0} == {
                "type": "synthesis_complete",
                "request_id": f"r{number}",
                "total_duration_s": 2.0,
                "elapsed_s": 0,
            }


@pytest.mark.parametrize("message", ["no json", "[]", "{}", '{"type": "text_delta"}'])
def test_what_has_no_text_is_refused_and_the_session_lives_on(url, message):
    assert httpx.post(f"{url}/invocations", content=message).status_code == 400
    with connect(f"{url.replace('http', 'ws')}/invocations-bidirectional-stream") as socket:
        socket.send(message)
        assert json.loads(socket.recv(HANG_S))["code"] == "bad_request"
        socket.send('{"text": "One"}')
        assert json.loads(socket.recv(HANG_S))["type"] == "synthesis_start"


def test_a_listener_who_leaves_lets_the_next_one_have_the_lock(url):
    with httpx.stream("POST", f"{url}/invocations", json={"text": "." * 2000}, timeout=HANG_S) as answer:
        next(answer.iter_raw())
    assert len(httpx.post(f"{url}/invocations", json={"text": "One"}, timeout=HANG_S).content) == 48_000
