"""Signature Version 4 as the service checks it: of a request, and of the chain of events that follows one.

botocore computes what the signature should have been, from the very request that came; nothing here signs.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from scripts.local_endpoint.errors import ServiceError, StreamError
from scripts.local_endpoint.eventstream import Message, encode_headers

SERVICE = "sagemaker"
EVENTS = "STREAMING-AWS4-HMAC-SHA256-EVENTS"
"""Stands for the hash of a body whose events are signed one by one."""

TIMESTAMP = "%Y%m%dT%H%M%SZ"
MAX_SKEW = timedelta(minutes=5)
_AUTHORIZATION = re.compile(r"\s*,?\s*(Credential|SignedHeaders|Signature)=([^,\s]+)")
_MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details."
)


@dataclass(frozen=True)
class Request:
    """What a signature covers. `target` as it stood in the request line, `headers` with names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Signed:
    """A request whose signature holds: where it was meant for, and what its events continue."""

    region: str
    signature: str
    signer: SigV4Auth


def _utcnow() -> datetime:
    return datetime.now(UTC)


def _refusal(name: str, message: str) -> ServiceError:
    return ServiceError(name, 403, message)


def verify_request(request: Request, credentials: Credentials, now: Callable[[], datetime] = _utcnow) -> Signed:
    """Raises ServiceError with the service's own reason."""
    authorization = request.headers.get("authorization")
    if not authorization:
        raise _refusal("MissingAuthenticationTokenException", "Missing Authentication Token")
    algorithm, _, rest = authorization.partition(" ")
    fields = dict(_AUTHORIZATION.findall(rest))
    missing = [name for name in ("Credential", "Signature", "SignedHeaders") if name not in fields]
    if algorithm != "AWS4-HMAC-SHA256" or missing:
        wanted = " ".join(f"Authorization header requires '{name}' parameter." for name in missing)
        raise _refusal("IncompleteSignatureException", wanted or f"Unsupported algorithm: {algorithm}")
    when = _date_of(request)
    region = _region_of(fields["Credential"], when, credentials)
    _check_skew(when, now())
    signed_names = fields["SignedHeaders"].lower().split(";")
    if "host" not in signed_names:
        raise _refusal("InvalidSignatureException", "'Host' must be a 'SignedHeader' in the AWS Authorization.")
    claimed_hash = request.headers.get("x-amz-content-sha256")
    if claimed_hash and claimed_hash != EVENTS and claimed_hash != hashlib.sha256(request.body).hexdigest():
        raise _refusal("InvalidSignatureException", "The value of x-amz-content-sha256 does not match the payload.")
    signer = SigV4Auth(credentials, SERVICE, region)
    covered = {name: value for name, value in request.headers.items() if name in signed_names}
    if claimed_hash:
        covered["x-amz-content-sha256"] = claimed_hash
    # The host is among the headers; the one in the URL is never read.
    rebuilt = AWSRequest(request.method, f"http://local{request.target}", covered, request.body)
    rebuilt.context["timestamp"] = when.strftime(TIMESTAMP)
    expected = signer.signature(signer.string_to_sign(rebuilt, signer.canonical_request(rebuilt)), rebuilt)
    if not hmac.compare_digest(expected, fields["Signature"]):
        raise _refusal("InvalidSignatureException", _MISMATCH)
    return Signed(region, expected, signer)


class EventChain:
    """The signatures of the events after a request, each of which covers the one before."""

    def __init__(self, signed: Signed, now: Callable[[], datetime] = _utcnow) -> None:
        self._signer, self._region, self._prior, self._now = signed.signer, signed.region, signed.signature, now

    def verify(self, envelope: Message) -> None:
        """Raises StreamError; events must come in the order in which they were signed."""
        date_ms, signature = envelope.headers.get(":date"), envelope.headers.get(":chunk-signature")
        if not isinstance(date_ms, int) or not isinstance(signature, bytes):
            raise StreamError(
                "IncompleteSignatureException", "An event has no :date or no :chunk-signature.", modeled=False
            )
        when = datetime.fromtimestamp(date_ms / 1000, UTC)
        carrier = AWSRequest()
        carrier.context["timestamp"] = when.strftime(TIMESTAMP)
        string_to_sign = "\n".join(
            (
                "AWS4-HMAC-SHA256-PAYLOAD",
                when.strftime(TIMESTAMP),
                self._signer.credential_scope(carrier),
                self._prior,
                hashlib.sha256(encode_headers({":date": when})).hexdigest(),
                hashlib.sha256(envelope.payload).hexdigest(),
            )
        )
        expected = self._signer.signature(string_to_sign, carrier)
        if abs(self._now() - when) > MAX_SKEW or not hmac.compare_digest(expected, signature.hex()):
            raise StreamError("InvalidSignatureException", _MISMATCH, modeled=False)
        self._prior = expected


def _date_of(request: Request) -> datetime:
    try:
        if amz_date := request.headers.get("x-amz-date"):
            return datetime.strptime(amz_date, TIMESTAMP).replace(tzinfo=UTC)
        return parsedate_to_datetime(request.headers["date"]).astimezone(UTC)
    except (KeyError, ValueError) as exc:
        raise _refusal(
            "IncompleteSignatureException",
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.",
        ) from exc


def _region_of(credential: str, when: datetime, credentials: Credentials) -> str:
    match credential.split("/"):
        case [key_id, date, region, service, "aws4_request"]:
            if key_id != credentials.access_key:
                raise _refusal("UnrecognizedClientException", "The security token included in the request is invalid.")
            if service != SERVICE:
                raise _refusal(
                    "InvalidSignatureException", f"Credential should be scoped to correct service: '{SERVICE}'."
                )
            if date != f"{when:%Y%m%d}":
                raise _refusal(
                    "InvalidSignatureException",
                    "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: "
                    f"'{date}' != '{when:%Y%m%d}'.",
                )
            return region
    raise _refusal(
        "IncompleteSignatureException",
        "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term.",
    )


def _check_skew(when: datetime, now: datetime) -> None:
    if when < now - MAX_SKEW:
        limit = now - MAX_SKEW
        raise _refusal(
            "InvalidSignatureException",
            f"Signature expired: {when:{TIMESTAMP}} is now earlier than {limit:{TIMESTAMP}} "
            f"({now:{TIMESTAMP}} - 5 min.)",
        )
    if when > now + MAX_SKEW:
        limit = now + MAX_SKEW
        raise _refusal(
            "InvalidSignatureException",
            f"Signature not yet current: {when:{TIMESTAMP}} is still later than {limit:{TIMESTAMP}} "
            f"({now:{TIMESTAMP}} + 5 min.)",
        )
