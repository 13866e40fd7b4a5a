"""Spans of utterances, over real sockets to a receiver of OTLP. Each part of the product has a tracer of its own, as in
three processes, and what a call does not carry is not there.
"""

import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import httpx
import pytest

from scripts.fake_app import FakeFrontEnd
from serve_app.config import EngineSettings, LimitSettings, SettingsError, TracingSettings
from serve_app.deployments.chunker import Chunker
from serve_app.deployments.kokoro import Kokoro
from serve_app.deployments.remote import RemoteEngine, RemotePhonemizer
from serve_app.deployments.telemetry import open_tracer
from serve_app.engine.fake import FakeEngine
from serve_app.errors import QueueSaturated
from serve_app.server.gateway import create_app
from serve_app.server.speech import Speech
from serve_app.tracing import NO_TRACER
from tests.deployments.handles import Handle
from tests.fakes import CountingRecorder
from tests.otlp import paths, receiving
from tests.running.conversation import conversation
from tests.serving import served

PARTS = ("kokoro-gateway", "kokoro-chunker", "kokoro-engine")


@contextmanager
def traced(engine):
    """The product's parts, served; their address and who gets the spans."""
    with receiving() as receiver:
        settings = TracingSettings(endpoint=receiver.url)
        gateway, chunking, speaking = (open_tracer(settings, part) for part in PARTS)
        chunker, kokoro = Chunker(FakeFrontEnd, chunking), Kokoro(engine, speaking)
        speech = Speech(
            RemotePhonemizer(Handle(pieces=chunker.pieces, languages=chunker.languages), gateway),
            RemoteEngine(Handle(synthesize=kokoro.synthesize, info=kokoro.info), EngineSettings(), gateway),
            CountingRecorder(),
            gateway,
            lookahead_segments=2,
        )
        with served(create_app(speech, LimitSettings(), CountingRecorder())) as url:
            yield url, receiver


def session(url):
    return conversation(SimpleNamespace(websocket=f"ws{url.removeprefix('http')}/invocations-bidirectional-stream"))


def ended(*request_ids):
    """Whether the spans of these utterances have come, which end last; with them comes all that is below."""

    def condition(spans):
        return {span.attributes["request_id"] for span in spans if span.name == "utterance"} >= set(request_ids)

    return condition


SEGMENT = [
    "utterance > segment",
    "utterance > segment > synthesize",
    "utterance > segment > synthesize > pass",
    "utterance > segment > synthesize > queue",
]
SENTENCE = ["utterance > sentence", "utterance > sentence > phonemize"]


def of(spans, request_id):
    (root,) = (span for span in spans if span.attributes.get("request_id") == request_id)
    return root, [span for span in spans if span.trace_id == root.trace_id]


def test_an_utterance_is_one_trace_through_all_parts_and_holds_no_text():
    with traced(FakeEngine(cost_s=0.01)) as (url, receiver):
        httpx.post(f"{url}/invocations", json={"text": "The first asks for the language, too."})
        with session(url) as talk:
            talk.say("Secret one. Secret two.", request_id="r1")
            talk.say("Secret three.", request_id="r2")
            assert talk.spoken()
            assert talk.spoken()
            talk.end()
        answer = httpx.post(f"{url}/invocations", json={"text": "Secret four.", "request_id": "r3"})
        assert answer.status_code == 200
        spans = receiver.wait_for(
            lambda spans: ended("r1", "r2", "r3")(spans) and sum(span.name == "synthesize" for span in spans) == 5
        )
    for request_id, sentences in (("r1", 2), ("r2", 1), ("r3", 1)):
        root, trace = of(spans, request_id)
        waited = ["utterance > waiting"] if request_id == "r2" else []
        expected = ["utterance", "utterance > first audio", *waited, *(SENTENCE + SEGMENT) * sentences]
        assert paths(trace) == sorted(expected)
        assert root.attributes["outcome"] == "complete"
        assert root.attributes["segments"] == sentences
        for span in trace:
            assert root.begin_s <= span.begin_s <= span.end_s <= root.end_s
    assert {(span.service, span.name) for span in spans} == {
        *(("kokoro-gateway", name) for name in ("utterance", "waiting", "first audio", "sentence", "segment")),
        ("kokoro-chunker", "phonemize"),
        *(("kokoro-engine", name) for name in ("synthesize", "queue", "pass")),
    }
    assert "ecret" not in repr(spans)


def test_what_is_refused_or_cancelled_ends_its_spans_too():
    engine = FakeEngine(gated=True)
    engine.fail_next(QueueSaturated("late", bound="wait"))
    engine.allow(1)
    with traced(engine) as (url, receiver):
        with session(url) as talk:
            talk.say("One.", request_id="refused")
            assert talk.until("error")[0]["code"] == "queue_saturated"
            talk.say("Two.", request_id="dropped")
            talk.until("synthesis_start")
            talk.send({"type": "cancel"})
            talk.until("synthesis_cancelled")
        spans = receiver.wait_for(
            lambda spans: ended("refused", "dropped")(spans) and any("refused" in span.attributes for span in spans)
        )
    assert of(spans, "refused")[0].attributes["outcome"] == "queue_saturated"
    assert of(spans, "dropped")[0].attributes["outcome"] == "cancelled"
    (synthesize,) = (span for span in of(spans, "refused")[1] if span.name == "synthesize")
    assert synthesize.attributes["refused"] == "queue_saturated"


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_is_of_utterances_and_a_call_carries_whether_its_own_is_in_it(share):
    """W3C Trace Context, section 3.2: version, trace, parent, flags, of which the lowest says `sampled`."""
    with receiving() as receiver:
        tracer = open_tracer(TracingSettings(endpoint=receiver.url, share=share), PARTS[0])
        assert tracer.carried() == ()
        with tracer.begin("utterance"):
            (context,) = tracer.carried()
            assert int(context.split("-")[3], 16) & 1 == share
            with open_tracer(TracingSettings(endpoint=receiver.url), PARTS[1]).begin("phonemize", context):
                pass
        if share:
            receiver.wait_for(lambda spans: len(spans) == 2)


def test_where_tracing_is_off_nothing_of_it_is_imported():
    assert open_tracer(TracingSettings(), "kokoro-gateway") is NO_TRACER
    off = "import sys, serve_app.server.gateway, serve_app.engine.engine; print('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", off], capture_output=True, text=True).stdout == "False\n"


def test_without_the_packages_the_start_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "serve_app.deployments.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsError, match="--extra tracing"):
        open_tracer(TracingSettings(endpoint="http://127.0.0.1:4318/v1/traces"), "kokoro-gateway")
