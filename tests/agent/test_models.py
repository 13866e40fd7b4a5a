"""The language model: the real botocore against ConverseStream on loopback, other providers, the reader."""

import asyncio
import itertools
import threading
from contextlib import aclosing

import pytest

from agent.conversation import ToolStarted
from agent.models import build_model
from agent.reader import SAMPLE, ReaderModel
from agent.tools import current_time
from tests.agent.bedrock import START, bedrock, delta, exception, stop, tool_call
from tests.agent.fakes import FakeSpeech, all_of, conversation, turn, types
from tests.asgi import turns_until

pytestmark = pytest.mark.anyio

GOOD = [START, delta("Good"), delta(" morning."), stop()]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch):
    for name in ("AWS_PROFILE", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def fake():
    with bedrock() as running:
        yield running


def model_of(fake, model_id="m", **options):
    return build_model("bedrock", "eu-west-1", {"model_id": model_id, "endpoint_url": fake.url, **options})


async def last_of(model):
    return (await all_of(turn(conversation(model), FakeSpeech())))[-1]


async def test_bedrock_answers_and_gets_the_inference_and_guardrail_settings(fake):
    fake.answers = {"m": [GOOD]}
    options = {"max_tokens": 300, "temperature": 0.2, "guardrail_id": "g", "guardrail_version": "1"}
    speech = FakeSpeech()
    events = await all_of(turn(conversation(model_of(fake, **options)), speech))
    assert types(events)[-1] == "agent_end"
    assert speech.said == ["Good morning."]
    assert fake.asked[0]["inferenceConfig"] == {"maxTokens": 300, "temperature": 0.2}
    assert fake.asked[0]["guardrailConfig"]["guardrailIdentifier"] == "g"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ([403, "AccessDeniedException"], "may not use"),
        ([404, "ResourceNotFoundException"], "does not exist"),
        ([400, "ValidationException"], "refused"),
        ([429, "ThrottlingException"], "over its limit"),
        ([503, "ServiceUnavailableException"], "not available"),
        ([403, "ExpiredTokenException"], "expired"),
        ([START, delta("Good"), exception("throttlingException")], "over its limit"),
        ([START, delta("Good"), exception("modelStreamErrorException")], "broke off"),
        ([START, delta("Good"), exception("internalServerException")], "failed"),
        ([START, delta("Good"), None], "broke off"),
        ([START, delta("Good"), b"\x00\x00\x00\x10garbage that is no frame"], "broke off"),
    ],
)
async def test_a_model_that_refuses_or_breaks_off_is_one_error_with_a_sentence(fake, answer, sentence):
    fake.answers = {"m": [answer]}
    last = await last_of(model_of(fake))
    assert last.type == "error"
    assert sentence in last.message
    assert "fake" not in last.message


async def test_an_answer_that_ends_in_the_middle_is_not_taken_for_a_whole_one(fake):
    fake.answers = {"m": [[START, delta("Good")]]}
    assert (await last_of(model_of(fake))).type == "error"


async def test_without_credentials_or_a_model_that_listens_there_is_a_sentence(fake, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    fake.answers = {"m": [GOOD]}
    assert "no AWS credentials" in (await last_of(model_of(fake))).message


async def test_a_tool_is_called_and_its_result_is_told_to_the_model(fake):
    fake.answers = {"m": [[START, tool_call("current_time", {"timezone": "Europe/Berlin"})], GOOD]}
    talk = conversation(model_of(fake), [current_time])
    written = [piece async for piece in talk.answer("What time is it?")]
    assert written == [ToolStarted("current_time"), "Good", " morning."]
    assert "toolResult" in fake.asked[1]["messages"][-1]["content"][0]


async def test_no_blank_text_and_no_placeholder_for_it_reaches_the_model(fake):
    fake.answers = {"m": [[START, delta(" "), stop()], GOOD]}
    talk = conversation(model_of(fake))
    await all_of(turn(talk, FakeSpeech()))
    await all_of(turn(talk, FakeSpeech(), prompt="Hello?"))
    assert fake.asked[1]["messages"] == [{"role": "user", "content": [{"text": "Tell me."}, {"text": "Hello?"}]}]


@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_bedrock_stops_reading_when_nobody_listens(fake, how):
    gate = threading.Event()
    more = itertools.chain([START], (delta(f"Word {number}. ") for number in range(5)), [gate])
    fake.answers = {"m": [[*more, *(delta("x" * 50_000) for _ in range(2000)), stop()]]}
    talk = conversation(model_of(fake))
    heard = asyncio.Event()

    async def listen():
        async with aclosing(talk.answer("Hi")) as answer:
            async for _ in answer:
                heard.set()
                if how == "close":
                    return

    async with asyncio.timeout(10):
        task = asyncio.create_task(listen())
        await heard.wait()
        if how == "cancel":
            task.cancel()
        await asyncio.wait((task,))
        gate.set()
        await asyncio.to_thread(fake.gone.wait, 10)
    assert fake.gone.is_set()
    assert fake.sent < 1000


@pytest.mark.parametrize(
    ("provider", "options", "word"),
    [
        ("bedrock", {}, "model id"),
        ("bedrock", {"model_id": "m", "max_tokns": 5}, "max_tokns"),
        ("reader", {"speed": 1}, "speed"),
        ("reader", {"text": " "}, "no text"),
        ("reader", {"tokens_per_second": -1}, "negative"),
        ("nobody", {}, "nobody"),
        ("model", {}, "model"),
    ],
)
async def test_a_model_that_cannot_be_built_is_refused_with_a_sentence(provider, options, word):
    with pytest.raises(ValueError, match=word):
        build_model(provider, "eu-west-1", options)


async def test_any_provider_of_strands_is_one_setting():
    model = build_model("llamacpp", None, {"base_url": "http://127.0.0.1:1", "model_id": "default"})
    assert type(model).__name__ == "LlamaCppModel"


async def test_the_reader_reads_its_whole_text_and_no_more():
    speech = FakeSpeech()
    talk = conversation(build_model("reader", None, {"tokens_per_second": 0}))
    await all_of(turn(talk, speech))
    assert " ".join(speech.said) == SAMPLE
    await turns_until(lambda: talk.messages[-1]["content"][0]["text"] == SAMPLE)


async def test_the_reader_writes_token_by_token():
    talk = conversation(ReaderModel("Antidisestablishmentarianism, they say. ", tokens_per_second=100_000))
    written = [piece async for piece in talk.answer("Hi")]
    assert "".join(written) == "Antidisestablishmentarianism, they say. "
    assert len(written) > 5


def test_the_clock_knows_time_zones():
    assert "M" in current_time._tool_func(timezone="Europe/Berlin")
    with pytest.raises(ValueError, match="no time zone"):
        current_time._tool_func(timezone="Mars/Base")
