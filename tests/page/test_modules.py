"""The page's logic without its controls, run where it belongs: in the browser. No sound, no synthesis."""

import base64
import json
import struct

import pytest

from serve_app.audio.codecs import wav_header
from serve_app.protocol.sse import encode_event

PCM = struct.pack("<9000h", *((number * 7919) % 65535 - 32767 for number in range(9000)))
WHOLE = [number / 32767 for number in struct.unpack("<9000h", PCM)]


def near(samples):
    """Float32 on the way."""
    return pytest.approx(samples, abs=1e-6)


@pytest.mark.parametrize("sizes", [[1], [2], [3], [4063], [1, 3, 4063, 2], [0, 1, 0, 5], [18000]])
def test_pcm_in_any_slices_gives_the_same_samples(modules, sizes):
    samples = modules(
        "const { PcmReassembler } = await import('/page/pcm.js'), pcm = new PcmReassembler();"
        "return slices(bytes(given[0]), given[1]).flatMap((slice) => [...pcm.push(slice)]);",
        PCM,
        sizes,
    )
    assert samples == near(WHOLE)


def test_half_a_sample_does_not_leak_into_the_next_utterance(modules):
    samples = modules(
        "const { PcmReassembler } = await import('/page/pcm.js'), pcm = new PcmReassembler(), all = bytes(given[0]);"
        "pcm.push(all.subarray(0, 7)); pcm.reset(); return [...pcm.push(all)];",
        PCM,
    )
    assert samples == near(WHOLE)


def streams_of(utterances):
    """What a server sends for `[(request_id, frames)]`: control frames as text, audio as base64 of binary frames."""
    for request_id, frames in utterances:
        yield {"text": json.dumps({"type": "synthesis_start", "request_id": request_id})}
        yield from ({"audio": base64.b64encode(frame).decode()} for frame in frames)
        yield {"text": json.dumps({"type": "synthesis_complete", "request_id": request_id})}


def test_a_session_joins_odd_frames_and_starts_each_utterance_afresh(modules):
    """The first utterance ends in the middle of a sample, and the second, which is not ours, is dropped."""
    sent = list(streams_of([("a", [PCM[:1], PCM[1:4], PCM[4:4067], PCM[4067:4071]]), ("b", [PCM]), ("c", [PCM])]))
    heard = modules(
        """
        const { SpeechSession } = await import('/page/session.js');
        const sockets = [];
        class FakeSocket {
            static OPEN = 1;
            readyState = 1;
            constructor() { sockets.push(this); setTimeout(() => this.onopen()); }
            send() {}
        }
        const real = window.WebSocket;
        window.WebSocket = FakeSocket;
        try {
            const session = new SpeechSession('ws://nowhere', () => {});
            await session.open();
            const heard = {};
            for (const id of ['a', 'c']) {
                const events = session.listen(id);
                for (const frame of given[0].splice(0, given[0].findLastIndex(
                    (frame) => frame.text?.includes('complete') && frame.text.includes(`"${id}"`)) + 1)) {
                    sockets[0].onmessage({ data: frame.text ?? bytes(frame.audio).buffer });
                }
                heard[id] = [];
                for await (const event of events) if (event.type === 'audio') heard[id].push(...event.samples);
            }
            return heard;
        } finally {
            window.WebSocket = real;
        }
        """,
        sent,
    )
    assert heard == {"a": near(WHOLE[:2035]), "c": near(WHOLE)}


@pytest.mark.parametrize("sizes", [[1], [7], [45, 3], [100000]])
@pytest.mark.parametrize("complete", [True, False])
def test_the_header_of_a_wav_stream_is_no_audio_wherever_it_is_cut(modules, sizes, complete):
    wav = wav_header(24000, len(PCM) if complete else None) + PCM
    got = modules("return answered(response(slices(bytes(given[0]), given[1]), 'audio/wav'))", wav, sizes)
    assert (got["rate"], got.get("error"), got["ended"]) == (24000, None, True)
    assert got["samples"] == near(WHOLE)


def events(line_end=b"\r\n"):
    """Three pieces of audio with words, as a server with other line ends would send them."""
    words = [{"w": "café", "start_s": 0.0, "end_s": 0.1}, {"w": "🌧", "start_s": 0.1, "end_s": 0.2}]
    parts = [
        encode_event("audio_stream_start", {"request_id": "r", "sample_rate": 24000}),
        b": a comment\n\n",
        encode_event("audio_words", {"request_id": "r", "seq": 0, "words": words}),
        *(
            encode_event(
                "audio_chunk", {"request_id": "r", "seq": seq, "data": base64.b64encode(PCM[at : at + 33]).decode()}
            )
            for seq, at in enumerate((0, 33, 66))
        ),
        encode_event("audio_stream_end", {"request_id": "r", "total_chunks": 3, "duration_s": 0.1}),
    ]
    raw = b"".join(parts).replace(b"\\u00e9", "é".encode()).replace(b"\\ud83c\\udf27", "🌧".encode())
    assert "🌧".encode() in raw
    return raw.replace(b"\n", line_end)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_events_survive_every_cut(modules, line_end):
    different = modules(
        """
        const all = bytes(given[0]), type = 'text/event-stream';
        const whole = JSON.stringify(await answered(response([all], type)));
        const cuts = Array.from({ length: all.length }, (_, cut) => [all.subarray(0, cut), all.subarray(cut)]);
        const different = [];
        for (const parts of [slices(all, [1]), slices(all, [2, 3]), ...cuts]) {
            const got = JSON.stringify(await answered(response(parts, type)));
            if (got !== whole) different.push(parts[0].length);
        }
        return [JSON.parse(whole), different];
        """,
        events(line_end),
    )
    whole, cuts = different
    assert cuts == []
    assert (whole["rate"], whole["ended"], [word["w"] for word in whole["words"]]) == (24000, True, ["café", "🌧"])
    assert whole["samples"] == near(WHOLE[:49])


def test_a_character_is_never_torn_apart(modules):
    text = "café 🌧 naïve."
    got = modules(
        """
        const { SseParser } = await import('/page/sse.js'), all = bytes(given[0]), got = new Set();
        for (let cut = 0; cut <= all.length; cut += 1) {
            const parser = new SseParser();
            const events = [...parser.push(all.subarray(0, cut)), ...parser.push(all.subarray(cut))];
            got.add(events.map(({ name, data }) => `${name} ${data}`).join());
        }
        return [...got];
        """,
        f"data: {text}\n\n".encode(),
    )
    assert got == [f"message {text}"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (events()[:-20], "The connection ended in the middle of an event."),
        (events().split(b"event: audio_stream_end")[0], "The connection ended in the middle of the answer."),
        (b"event: audio_chunk\ndata: {nonsense\n\n", "The server sent an event that is not JSON."),
        (encode_event("error", {"message": "the engine stumbled", "code": "internal"}), "The engine stumbled."),
    ],
)
def test_a_stream_that_breaks_off_or_makes_no_sense_is_reported(modules, body, error):
    assert modules("return answered(response([bytes(given[0])], 'text/event-stream'))", body)["error"] == error


def test_an_answer_is_read_as_what_it_says_it_is(modules):
    pcm = modules("return answered(response(slices(bytes(given[0]), [3]), 'audio/pcm;rate=16000'))", PCM)
    assert (pcm["rate"], pcm["samples"], pcm["ended"]) == (16000, near(WHOLE), True)
    mp3 = modules("return answered(response([bytes(given[0])], 'audio/mpeg'))", PCM)
    assert mp3["error"] == "The server answered with audio/mpeg that this page cannot play."
    page = modules("return answered(response([bytes(given[0])], 'text/html; charset=utf-8'))", b"<p>Sign in")
    assert page["error"] == "The server answered with text/html that this page cannot play."


@pytest.mark.parametrize(
    ("body", "kind", "error"),
    [
        ({"error": "text is too long", "code": "text_too_long"}, "application/json", "Text is too long."),
        ({"error": {"message": "no such voice"}}, "application/json; charset=utf-8", "No such voice."),
        ({}, "application/json", "The server answered with status 503."),
        ("<p>Bad gateway", "text/html", "The server answered with status 503."),
    ],
)
def test_a_refusal_is_told_in_the_servers_words(modules, body, kind, error):
    assert modules("return answered(response([bytes(given[0])], given[1], 503))", json.dumps(body).encode(), kind) == {
        "samples": [],
        "words": [],
        "error": error,
    }


QUEUE = """
    const { PcmQueue } = await import('/page/pcm-queue.js');
    const rendered = (queue, samples) => {
        const output = new Float32Array(samples), report = queue.render(output);
        return [[...output], report];
    };
    const say = (queue, id, ...chunks) => {
        queue.handle({ type: 'begin', id, sampleRate: 24000 });
        for (const samples of chunks) queue.handle({ type: 'push', id, samples: Float32Array.from(samples) });
    };
"""


@pytest.mark.parametrize("block", [1, 7, 128, 1024])
def test_the_queue_plays_every_sample_once_in_order(modules, block):
    chunks = [WHOLE[:1], WHOLE[1:500], [], WHOLE[500:1000]]
    output, report = modules(
        QUEUE
        + "const queue = new PcmQueue(24000); say(queue, 'a', ...given[0]); queue.handle({ type: 'end', id: 'a' });"
        "const heard = []; let last;"
        "while (heard.length < 1200) {"
        "    const [output, report] = rendered(queue, given[1]); heard.push(...output); last = report ?? last;"
        "}"
        "return [heard, last];",
        chunks,
        block,
    )
    assert output[:1000] == near(WHOLE[:1000])
    assert set(output[1000:]) == {0}
    assert (report["played_s"], report["buffered_s"], report["gaps"], report["done"]) == (1000 / 24000, 0, 0, True)


def test_a_queue_that_runs_dry_counts_one_gap_until_more_comes(modules):
    reports = modules(
        QUEUE + "const queue = new PcmQueue(24000), gaps = [];"
        "say(queue, 'a'); gaps.push(rendered(queue, 100)[1].gaps);"  # not begun: no gap
        "queue.handle({ type: 'push', id: 'a', samples: new Float32Array(50) });"
        "gaps.push(rendered(queue, 100)[1].gaps); rendered(queue, 100);"
        "queue.handle({ type: 'push', id: 'a', samples: new Float32Array(50) });"
        "gaps.push(rendered(queue, 40)[1].gaps);"
        "queue.handle({ type: 'end', id: 'a' }); gaps.push(rendered(queue, 100)[1].gaps); return gaps;"
    )
    assert reports == [0, 1, 1, 1]


def test_what_was_on_its_way_when_the_listener_interrupts_is_never_heard(modules):
    output, report = modules(
        QUEUE + "const queue = new PcmQueue(24000); say(queue, 'old', new Float32Array(5000).fill(1));"
        "rendered(queue, 128); queue.handle({ type: 'flush' });"
        "queue.handle({ type: 'push', id: 'old', samples: new Float32Array(500).fill(1) });"
        "const [output, report] = rendered(queue, 400); return [output, report];"
    )
    assert report["played_s"] == 128 / 24000  # frozen
    assert (report["buffered_s"], report["done"]) == (0, True)
    assert output[0] > 0.9  # a fade of 5 ms: no click
    assert output[:120] == sorted(output[:120], reverse=True)
    assert set(output[120:]) == {0}


def test_a_late_piece_of_the_old_utterance_does_not_get_into_the_new_one(modules):
    output, report = modules(
        QUEUE + "const queue = new PcmQueue(24000); say(queue, 'old', new Float32Array(50)); say(queue, 'new', [0.5]);"
        "queue.handle({ type: 'push', id: 'old', samples: Float32Array.of(1, 1, 1) });"
        "queue.handle({ type: 'end', id: 'old' });"
        "return rendered(queue, 128);"
    )
    assert [sample for sample in output if sample] == [0.5]
    assert (report["id"], report["played_s"], report["gaps"], report["done"]) == ("new", 1 / 24000, 1, False)


@pytest.mark.parametrize(("rate", "length"), [(48000, 2000), (44100, 1837), (16000, 667)])
def test_a_sound_card_of_another_rate_hears_the_same_length_and_pitch(modules, rate, length):
    """1000 samples of a ramp: linear interpolation keeps it a ramp."""
    output = modules(
        QUEUE + "const queue = new PcmQueue(given[0]);"
        "say(queue, 'a', Array.from({ length: 1000 }, (_, index) => index / 1000));"
        "return rendered(queue, 2100)[0];",
        rate,
    )
    step = 24000 / rate / 1000
    ramp = output[: length - 3]
    assert [b - a for a, b in zip(ramp[3:-1], ramp[4:], strict=True)] == pytest.approx([step] * (length - 7), abs=1e-5)
    assert all(abs(sample) < 1e-6 for sample in output[length + 3 :])


def test_tokens_are_the_text_and_tear_no_character(modules):
    text = "Dr. Ames paid $14.20.\n\n  “Loud?”  空は青く、海はもっと青かったのでした。 🌧🌧🌧🌧🌧🌧🌧🌧🌧🌧🌧🌧🌧🌧 "
    tokens = modules("return (await import('/page/words.js')).tokens(given[0])", text)
    assert "".join(tokens) == text
    assert tokens[:4] == ["Dr.", " Ames", " paid", " $14.20."]
    assert modules("return (await import('/page/words.js')).tokens('')") == []
    assert modules("return (await import('/page/words.js')).tokens(' \\n')") == [" \n"]
    assert all(token.encode() for token in tokens)  # half an emoji does not encode


@pytest.mark.parametrize(
    ("word", "text", "place"),
    [
        ("the", " the other", [1, 4]),
        ("$14.20", "paid $14.20 (in coins)", [5, 11]),
        ("in coins", "14\n(in\n coins)", [4, 13]),
        ("not", "here", None),
        ("", "here", None),
        ("far", "x" * 300 + "far", None),
    ],
)
def test_a_spoken_word_is_found_in_the_text(modules, word, text, place):
    assert modules("return (await import('/page/words.js')).placeOf(...given)", word, text) == place


def test_the_word_that_is_heard_is_the_one_whose_time_it_is(modules):
    timed = [{"start_s": 0.1, "end_s": 0.3}, {"start_s": 0.3, "end_s": 0.5}, {"start_s": 0.8, "end_s": 1.0}]
    positions = [0, 0.1, 0.29, 0.3, 0.6, 0.8, 1.0]
    assert modules(
        "const { wordAt } = await import('/page/words.js'); return given[1].map((at_s) => wordAt(given[0], at_s))",
        timed,
        positions,
    ) == [-1, 0, 0, 1, -1, 2, -1]


def test_the_timeline_tells_streaming_gaps_and_what_is_left_to_hear(modules):
    track = modules(
        """
        const { Track } = await import('/page/timeline.js'), track = new Track();
        track.text(0.0, 5); track.text(0.5, 6);
        track.segment(0.2, 2); track.audio(0.2, 1.0);
        track.report(0.3, { played_s: 0.1, buffered_s: 0.9, gaps: 0 });
        track.report(1.2, { played_s: 1.0, buffered_s: 0, gaps: 0 });
        track.report(1.25, { played_s: 1.0, buffered_s: 0, gaps: 1 });
        track.segment(2.0, 1); track.audio(2.0, 0.5); track.received(2.0);
        track.report(2.2, { played_s: 1.2, buffered_s: 0.3, gaps: 1 });
        return { playing: track.playing, first_s: track.firstAudio_s, end_s: track.end_s, list: track.list() };
        """
    )
    spans = [(span["from_s"], span["to_s"]) for span in track["playing"]]
    assert spans == [pytest.approx((0.2, 1.2)), pytest.approx((2.0, 2.2))]
    assert (track["first_s"], track["end_s"]) == (0.2, pytest.approx(2.5))
    assert [words for _, words in track["list"]] == [
        "first words sent",
        "first audio is here",
        "sentence 1 arrives (2 words)",
        "sentence 1 is heard",
        "last words sent, 11 characters in 2 pieces",
        "sentence 2 arrives (1 word)",
        "speaks again after a gap",
        "all 1.5 s of audio are here",
        "sentence 2 is heard",
    ]


@pytest.mark.parametrize(
    ("streamed_s", "batch_s", "words"),
    [
        (0.2, 3.0, "The stream spoke 15 times sooner."),
        (0.2, 0.5, "The stream spoke 2.5 times sooner."),
        (0.5, 0.6, "The stream spoke 0.10 s sooner."),
        (0.5, 0.5, "A text of one sentence: both begin together."),
        (0.6, 0.5, "Batch was 0.10 s sooner this time."),
        (0.6, None, ""),
    ],
)
def test_the_comparison_says_what_was_measured(modules, streamed_s, batch_s, words):
    assert modules("return (await import('/page/timeline.js')).comparison(...given)", streamed_s, batch_s) == words


@pytest.mark.parametrize(("span_s", "marks", "every_s"), [(1, 10, 0.1), (1, 4, 0.5), (12.4, 13, 1), (95, 4, 50)])
def test_the_marks_of_the_axis_are_round(modules, span_s, marks, every_s):
    assert modules("return (await import('/page/timeline.js')).markEvery(...given)", span_s, marks) == every_s
