"""The event-stream encoding, against botocore's decoder and the SDK's own."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smithy_aws_event_stream.events import EventHeaderEncoder, EventMessage

from scripts.local_endpoint.errors import StreamError
from scripts.local_endpoint.eventstream import (
    BadEncoding,
    Decoder,
    Message,
    encode,
    encode_headers,
    error_member,
    payload_part,
)
from tests.client.hostile import cut

WHEN = datetime(2026, 5, 4, 3, 2, 1, 987_000, UTC)
HEADERS = {":message-type": "event", "größe": "ü" * 300, ":chunk-signature": b"\x00\xff", ":date": WHEN}


def test_the_encoding_is_that_of_the_sdk() -> None:
    assert encode(HEADERS, b"payload") == EventMessage(headers=HEADERS, payload=b"payload").encode()
    encoder = EventHeaderEncoder()
    encoder.encode_headers(HEADERS)
    assert encode_headers(HEADERS) == encoder.get_result()


@given(st.lists(st.integers(0, 10_000), max_size=8))
def test_messages_come_out_whole_whatever_the_slices(borders: list[int]) -> None:
    stream = encode(HEADERS, b"one") + payload_part(b"two", DataType="UTF8") + encode({}, b"")
    decoder = Decoder()
    messages = [message for data in cut(stream, borders) for message in decoder.feed(data)]
    assert [message.payload for message in messages] == [b"one", b"two", b""]
    assert messages[0] == Message({**HEADERS, ":date": 1_777_863_721_987}, b"one")
    assert messages[1].headers["DataType"] == "UTF8"


def test_messages_come_out_of_single_bytes() -> None:
    decoder = Decoder()
    stream = payload_part(b"one") + payload_part(b"two")
    assert [m.payload for at in range(len(stream)) for m in decoder.feed(stream[at : at + 1])] == [b"one", b"two"]


@pytest.mark.parametrize("at", range(0, len(payload_part(b"some bytes")), 7))
def test_a_flipped_bit_is_noticed(at: int) -> None:
    damaged = bytearray(payload_part(b"some bytes"))
    damaged[at] ^= 1
    with pytest.raises(BadEncoding):
        list(Decoder().feed(bytes(damaged) + bytes(100)))


def test_an_error_of_the_services_is_an_exception_and_any_other_an_error() -> None:
    (modeled,) = Decoder().feed(error_member(StreamError("ModelStreamError", "why", ErrorCode="StreamBroken")))
    assert modeled.headers[":exception-type"] == "ModelStreamError"
    assert modeled.payload == b'{"Message": "why", "ErrorCode": "StreamBroken"}'
    (other,) = Decoder().feed(error_member(StreamError("InvalidSignatureException", "why", modeled=False)))
    assert (other.headers[":error-code"], other.headers[":error-message"]) == ("InvalidSignatureException", "why")
