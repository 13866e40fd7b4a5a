"""Signatures as the service checks them, made by botocore and by the SDK's event signer."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aws_sdk_signers import AsyncEventSigner, AWSCredentialIdentity
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from smithy_aws_event_stream.events import EventHeaderEncoder, EventMessage

from scripts.local_endpoint.errors import ServiceError, StreamError
from scripts.local_endpoint.eventstream import Decoder, Message
from scripts.local_endpoint.signatures import EventChain, Request, Signed, verify_request

CREDENTIALS = Credentials("test", "test")
TARGET = "/endpoints/tts/invocations?a=1&b=%2F"


def signed(credentials: Credentials = CREDENTIALS, service: str = "sagemaker", target: str = TARGET) -> Request:
    request = AWSRequest("POST", f"http://127.0.0.1:8081{target}", {"content-type": "application/json"}, b"{}")
    SigV4Auth(credentials, service, "eu-west-1").add_auth(request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Request("POST", target, {**headers, "host": "127.0.0.1:8081", "user-agent": "not signed"}, b"{}")


def changed(request: Request, **headers: str) -> Request:
    renamed = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(request.method, request.target, {**request.headers, **renamed}, request.body)


def refusal(request: Request, **options: Any) -> tuple[str, int, str]:
    with pytest.raises(ServiceError) as caught:
        verify_request(request, CREDENTIALS, **options)
    return caught.value.name, caught.value.http_status, str(caught.value)


@pytest.mark.parametrize("target", [TARGET, "/endpoints/a%20b/invocations", "/endpoints/tts/invocations"])
def test_what_botocore_signs_is_accepted(target: str) -> None:
    assert verify_request(signed(target=target), CREDENTIALS).region == "eu-west-1"


def test_a_session_token_may_come_along() -> None:
    assert verify_request(signed(Credentials("test", "test", "token")), CREDENTIALS)


def test_a_changed_header_path_or_secret_is_noticed() -> None:
    for request in (
        changed(signed(), content_type="text/plain"),
        changed(signed(), host="elsewhere"),
        Request("POST", TARGET + "&c=2", signed().headers, b"{}"),
        Request("PUT", TARGET, signed().headers, b"{}"),
        Request("POST", TARGET, signed().headers, b"else"),
        signed(Credentials("test", "wrong")),
    ):
        name, status, message = refusal(request)
        assert (name, status) == ("InvalidSignatureException", 403)
        assert "does not match the signature you provided" in message


@pytest.mark.parametrize(
    ("authorization", "name", "sentence"),
    [
        ("", "MissingAuthenticationTokenException", "Missing Authentication Token"),
        ("Bearer abc", "IncompleteSignatureException", "'Credential'"),
        (
            "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=0",
            "IncompleteSignatureException",
            "exactly 5",
        ),
        (
            "AWS4-HMAC-SHA256 Credential=test/20200101/eu-west-1/sagemaker/aws4_request,SignedHeaders=host,Signature=0",
            "InvalidSignatureException",
            "Date in Credential scope",
        ),
    ],
)
def test_an_authorization_that_says_too_little_is_refused(authorization: str, name: str, sentence: str) -> None:
    found, status, message = refusal(changed(signed(), authorization=authorization))
    assert (found, status) == (name, 403)
    assert sentence in message


def test_another_service_key_or_time_is_refused_with_the_reason() -> None:
    assert "correct service: 'sagemaker'" in refusal(signed(service="bedrock"))[2]
    assert refusal(signed(Credentials("nobody", "test")))[0] == "UnrecognizedClientException"
    for shift, sentence in ((timedelta(minutes=6), "expired"), (timedelta(minutes=-6), "not yet current")):
        assert sentence in refusal(signed(), now=lambda shift=shift: datetime.now(UTC) + shift)[2]
    undated = signed()
    headers = {name: value for name, value in undated.headers.items() if name != "x-amz-date"}
    assert refusal(Request("POST", TARGET, headers, b"{}"))[0] == "IncompleteSignatureException"


def test_the_host_must_be_signed() -> None:
    request = signed()
    unhosted = request.headers["authorization"].replace(";host", "")
    assert "'Host' must be a 'SignedHeader'" in refusal(changed(request, authorization=unhosted))[2]


def envelopes(request: Signed, payloads: list[bytes]) -> list[Message]:
    async def sign() -> list[Message]:
        signer = AsyncEventSigner(initial_signature=request.signature.encode(), event_encoder_cls=EventHeaderEncoder)
        properties: Any = {"region": "eu-west-1", "service": "sagemaker"}
        identity = AWSCredentialIdentity(access_key_id="test", secret_access_key="test")
        events = [
            await signer.sign(event=EventMessage(payload=payload), identity=identity, properties=properties)
            for payload in payloads
        ]
        events.append(await signer.sign_empty(event=EventMessage(), identity=identity, properties=properties))
        return [message for event in events for message in Decoder().feed(event.encode())]

    return asyncio.run(sign())


def verify(request: Signed, events: list[Message]) -> None:
    chain = EventChain(request)
    for event in events:
        chain.verify(event)


def test_a_chain_of_events_holds_in_its_order_alone() -> None:
    request = verify_request(signed(), CREDENTIALS)
    events = envelopes(request, [b"one", b"two"])
    verify(request, events)
    for wrong in (events[1:], [events[0], events[0]], [Message(events[0].headers, b"else")], [Message({}, b"")]):
        with pytest.raises(StreamError, match="signature"):
            verify(request, wrong)


def test_an_event_from_another_time_is_refused() -> None:
    request = verify_request(signed(), CREDENTIALS)
    late = EventChain(request, now=lambda: datetime.now(UTC) + timedelta(minutes=6))
    with pytest.raises(StreamError):
        late.verify(envelopes(request, [])[0])
