"""The logic of talking to the agent without its controls, run in the browser."""

import base64
import json

import pytest

from agent.events import AgentEnd, AgentStart, AudioChunk, AudioStreamEnd, AudioStreamStart, AudioWords, TextDelta
from serve_app.protocol.sse import encode_event

PCM = bytes(range(100))

ASKED = """
    const asked = async (response) => {
        const { ask } = await import('/page/agent.js'), real = window.fetch;
        const got = { text: '', samples: 0, words: [], kinds: [] };
        window.fetch = async (url, request) => {
            got.sent = [url.href, request.method, request.headers, JSON.parse(request.body)];
            return response;
        };
        try {
            const fields = { prompt: 'Hi', mode: 'bidi' }, { signal } = new AbortController();
            for await (const event of ask(new URL('http://localhost:1/'), 'a conversation', fields, signal)) {
                if (got.kinds.at(-1) !== event.type) got.kinds.push(event.type);
                if (event.type === 'text') got.text += event.text;
                if (event.type === 'audio') got.samples += event.samples.length;
                if (event.type === 'words') got.words.push(...event.words);
            }
        } catch (error) {
            got.error = error.message;
        } finally {
            window.fetch = real;
        }
        return got;
    };
"""


def sse(*events):
    return b"".join(encode_event(None, event.dump()) for event in events)


def pieces(data, size):
    return [
        AudioChunk("r", seq, base64.b64encode(data[at : at + size]).decode())
        for seq, at in enumerate(range(0, len(data), size))
    ]


BEGUN = sse(AgentStart("r", "bidi"), TextDelta("r", 0, "A café"), TextDelta("r", 1, " 🌧."))
WHOLE = BEGUN + sse(
    AudioStreamStart("r", "pcm16", "af_heart", 24000),
    AudioWords("r", 0, ({"w": "A", "start_s": 0.0, "end_s": 0.1},)),
    *pieces(PCM, 33),
    AudioStreamEnd("r", 4, 0.1),
    AgentEnd("r"),
)


def test_an_answer_is_the_same_however_the_network_cuts_it(modules):
    raw = WHOLE.replace(b"\\u00e9", "é".encode()).replace(b"\\ud83c\\udf27", "🌧".encode())
    assert "🌧".encode() in raw
    whole, different = modules(
        ASKED
        + """
        const all = bytes(given[0]), type = 'text/event-stream; charset=utf-8';
        const whole = JSON.stringify(await asked(response([all], type))), different = [];
        const cuts = Array.from({ length: all.length }, (_, cut) => [all.subarray(0, cut), all.subarray(cut)]);
        for (const parts of [slices(all, [1]), slices(all, [2, 3]), ...cuts]) {
            if (JSON.stringify(await asked(response(parts, type))) !== whole) different.push(parts[0].length);
        }
        return [JSON.parse(whole), different];
        """,
        raw,
    )
    assert different == []
    assert (whole["text"], whole["samples"], whole["words"]) == (
        "A café 🌧.",
        len(PCM) // 2,
        [{"w": "A", "start_s": 0, "end_s": 0.1}],
    )
    assert whole["kinds"] == ["begun", "text", "start", "words", "audio", "end"]
    url, method, headers, body = whole["sent"]
    assert (url, method, body) == (
        "http://localhost:1/invocations",
        "POST",
        {"prompt": "Hi", "mode": "bidi", "format": "pcm16", "timestamps": True},
    )
    assert headers["x-amzn-bedrock-agentcore-runtime-session-id"] == "a conversation"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (BEGUN, "The connection ended in the middle of the answer."),
        (WHOLE[:-20], "The connection ended in the middle of an event."),
        (BEGUN + b"data: {nonsense\n\n", "The server sent an event that is not JSON."),
        (BEGUN + b"data: null\n\n", "The server sent an event that is not JSON."),
        (BEGUN + sse(AudioStreamStart("r", "ulaw", "af_heart", 8000)), "The agent speaks in ulaw, not in pcm16."),
        (BEGUN + b'data: {"type": "error", "message": "the model tripped"}\n\n', "The model tripped."),
        (BEGUN + b'data: {"type": "news"}\n\n' + sse(AgentEnd("r")), None),
    ],
)
def test_an_answer_without_its_end_is_a_failure(modules, body, error):
    got = modules(ASKED + "return asked(response([bytes(given[0])], 'text/event-stream'))", body)
    assert (got["text"], got.get("error")) == ("A café 🌧.", error)


@pytest.mark.parametrize(
    ("status", "kind", "body", "error"),
    [
        (400, "application/json", {"error": "prompt is blank", "code": "bad_request"}, "Prompt is blank."),
        (502, "text/html", "<p>Bad gateway", "The server answered with status 502."),
        (200, "application/json", {}, "The agent answered with application/json, not events."),
    ],
)
def test_a_refusal_is_told_in_the_agents_words(modules, status, kind, body, error):
    script = ASKED + "return asked(response([bytes(given[0])], given[1], given[2]))"
    assert modules(script, json.dumps(body).encode(), kind, status)["error"] == error


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/"),
        ("localhost:9000", "http://localhost:9000/"),
        ("https://agent.example/voice", "https://agent.example/voice/"),
        ("http://agent.example", "The agent must be on this machine (127.0.0.1 or localhost), or at an https address."),
        ("", "The agent's address must look like http://127.0.0.1:8080."),
        ("file:///etc/passwd", "The agent's address must look like http://127.0.0.1:8080."),
    ],
)
def test_only_addresses_that_the_page_may_talk_to_are_taken(modules, text, address):
    script = """
        const { agentAddress } = await import('/page/agent.js');
        try { return agentAddress(given[0]).href; } catch (error) { return error.message; }
    """
    assert modules(script, text) == address


def test_every_conversation_has_an_id_that_agentcore_takes(modules):
    ids = modules(
        "const { newConversationId } = await import('/page/agent.js');"
        "return Array.from({ length: 20 }, newConversationId)"
    )
    assert len(set(ids)) == 20
    assert {len(name) for name in ids} == {40}


@pytest.mark.parametrize(
    ("bidi", "batch", "words"),
    [
        ([0.2, "a"], [0.7, "a"], "Bidi was heard 3.5 times sooner than batch."),
        ([0.2, "a"], [3.0, "a"], "Bidi was heard 15 times sooner than batch."),
        ([0.5, "a"], [0.6, "b"], "Bidi was heard 1.20 times sooner than batch. Their prompts were not the same."),
        ([0.5, "a"], [0.51, "a"], "Both were heard equally soon."),
        ([0.6, "a"], [0.5, "a"], "Batch was heard 1.20 times sooner than bidi this time."),
        ([0.6, "a"], [None, "a"], ""),
        ([0.6, "a"], None, ""),
    ],
)
def test_the_verdict_says_what_was_measured(modules, bidi, batch, words):
    script = """
        const { Wait, verdict } = await import('/page/latencies.js');
        const wait = (given) => given && Object.assign(new Wait(given[1]), { sound_s: given[0] });
        return verdict(...given.map(wait));
    """
    assert modules(script, bidi, batch) == words


def test_a_wait_ends_once(modules):
    script = """
        const { Wait } = await import('/page/latencies.js'), wait = new Wait('a'), told = [wait.summary('bidi')];
        wait.text(0.1); wait.text(0.2); told.push(wait.summary('bidi'));
        wait.sound(0.3); wait.sound(0.4); told.push(wait.summary('bidi'));
        return told;
    """
    assert modules(script) == [
        "",
        "In bidi: first text after 0.10 s.",
        "In bidi: first text after 0.10 s, first sound after 0.30 s.",
    ]
