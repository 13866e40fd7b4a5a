"""Talking to the agent: the real page, the real agent and the real routes, in a real browser over real sockets."""

import asyncio
import base64
import json
import os
from copy import deepcopy
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from agent.app import create_app
from agent.events import AgentStart, TextDelta
from agent.reader import SAMPLE, ReaderModel
from agent.settings import AgentSettings
from agent.speech import SpeechSource
from serve_app.protocol.sse import encode_event
from tests.page.conftest import Port

TWO = "One two three. Four five."
FIVE = "The first one. The second one. The third one. The fourth one. The fifth one."


class ToldReader(ReaderModel):
    """The reader, which remembers what it was told of the conversation at each prompt."""

    def __init__(self, text, tokens_per_second):
        super().__init__(text, tokens_per_second)
        self.told = []

    def stream(self, messages, *args, **kwargs):
        self.told.append(
            [(message["role"], *(block["text"] for block in message["content"])) for message in deepcopy(messages)]
        )
        return super().stream(messages, *args, **kwargs)


class Agent(Port):
    """The agent, at a port of its own; `asked` holds the requests of its callers."""

    def __init__(self):
        super().__init__(PlainTextResponse("nobody here", 404))

    def read(self, server, text, tokens_per_second=0.0, page_may_talk=True):
        """From now on, answer every prompt with `text`."""
        page = f"http://127.0.0.1:{server.port}"
        settings = AgentSettings(
            provider="reader",
            tts_endpoint=page,
            cors_origins=(page,) if page_may_talk else (),
        )
        model, source, self.asked = ToldReader(text, tokens_per_second), SpeechSource(settings), []

        def open_speech(request):
            self.asked.append(request)
            return source.open(request)

        self.app = create_app(settings, model, open_speech)
        return model

    def play(self, answer):
        """From now on, `answer(request)` is what a prompt gets."""
        cors = Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])
        self.app = Starlette(routes=[Route("/invocations", answer, methods=["POST"])], middleware=[cors])


@pytest.fixture(scope="module")
def agent():
    agent = Agent()
    yield agent
    agent.stop()


@pytest.fixture
def talk(page, agent):
    """The page's other half, with the agent's address in its field."""
    page.turn_to("talk")
    page("agent").clear()
    page("agent").send_keys(f"127.0.0.1:{agent.port}")
    return page


def ask(page, prompt="Hello?", mode="bidi"):
    page.browser.find_element(By.CSS_SELECTOR, f"[value={mode}]").click()
    page.run("document.getElementById('prompt').value = arguments[0]", prompt)
    page("send").click()


def done(page):
    page.until(lambda: page("talk-status").text.startswith("Done"), "the end of the answer")


def heard_something(page):
    page.until(lambda: page("bidi-sound").text.endswith(" s") and page.seconds("heard") > 0.1, "sound")


def failed(page):
    page.until(lambda: page("talk-error").text, "the error")
    page.until(lambda: page("hush").get_attribute("aria-disabled") == "true", "the end")
    return page("talk-error").text


def picture(page, file):
    in_the_light = "#conversation article:last-child .word.said ~ .word.now"
    page.until(lambda: page.seconds("heard") > 1.2, "the first sentence")
    page.until(lambda: page.browser.find_elements(By.CSS_SELECTOR, in_the_light), "a word of the second")
    size = {"width": 1200, "height": 900, "deviceScaleFactor": 1.5, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.run("const agent = document.getElementById('agent'); agent.value = agent.defaultValue")
    shot = page.browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    file.write_bytes(base64.b64decode(shot["data"]))
    page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def lines(page, kind):
    return [line.text for line in page.browser.find_elements(By.CSS_SELECTOR, f"#conversation .{kind}")]


def test_text_appears_and_is_heard_to_its_end_word_by_word(talk, agent, server):
    agent.read(server, TWO)
    ask(talk)
    talk.until(lambda: float(talk("level").get_attribute("value")) > 0.1, "energy in the samples that were rendered")
    talk.until(lambda: talk.browser.find_elements(By.CSS_SELECTOR, ".word.now"), "a word in the light")
    done(talk)
    assert (lines(talk, "asked"), lines(talk, "answered")) == (["You Hello?"], [f"Agent {TWO}"])
    said = talk.browser.find_elements(By.CSS_SELECTOR, "#conversation .word.said:not(.now)")
    assert [mark.text for mark in said] == TWO.split()
    assert talk("talk-status").text == f"Done: {talk('heard').text} of speech."
    assert talk.seconds("heard") > 0.5
    assert (talk.seconds("buffered"), talk("talk-error").text) == (0, "")
    assert 0 <= talk.seconds("bidi-text") <= talk.seconds("bidi-sound")
    assert lines(talk, "note")[0].startswith("In bidi: first text after ")
    assert (talk("batch-text").text, talk("batch-sound").text) == ("–", "–")
    assert (agent.asked[0].voice, agent.asked[0].speed, agent.asked[0].heard_s) == ("af_heart", 1, None)


def test_both_modes_are_timed_and_compared(talk, agent, server):
    """With TALK_PICTURE=docs/talk.png in the environment, the picture of it in the docs is renewed."""
    agent.read(server, SAMPLE, tokens_per_second=40)
    for mode in ("batch", "bidi"):
        ask(talk, "How soon do you speak?", mode)
        talk.until(lambda mode=mode: talk(f"{mode}-sound").text.endswith(" s"), "the first sound")
    if "TALK_PICTURE" in os.environ:
        picture(talk, Path(os.environ["TALK_PICTURE"]))
    talk("hush").click()
    assert talk.seconds("bidi-sound") < talk.seconds("batch-sound")
    assert [request.mode for request in agent.asked] == ["batch", "bidi"]
    assert "Bidi was heard " in talk("verdict-of-modes").text
    assert talk("verdict-of-modes").text.endswith(" times sooner than batch.")


def test_another_prompt_silences_the_agent_and_tells_it_what_was_heard(talk, agent, server):
    """The answer is being spoken, and all of it has been sent: only the page knows how much was heard."""
    model = agent.read(server, FIVE * 3)
    ask(talk, "One?")
    heard_something(talk)
    ask(talk, "Two?")
    heard_s = talk.until(lambda: len(agent.asked) == 2, "the second prompt") and agent.asked[1].heard_s
    assert heard_s > 0.1
    talk.until(lambda: len(model.told) == 2, "the second answer")
    (_, first), (_, heard), (_, second) = model.told[1]
    assert (first, second) == ("One?", "Two?")
    assert 0 < len(heard) < len(FIVE)
    assert FIVE.startswith(heard)
    assert lines(talk, "note")[0].startswith(f"Interrupted after {heard_s:.1f} s of speech.")
    talk.until(lambda: lines(talk, "answered") == [f"Agent {FIVE * 3}"] * 2, "all of the second answer")
    talk("hush").click()


def test_a_prompt_while_the_model_still_writes_ends_that_answer(talk, agent, server):
    model = agent.read(server, FIVE * 20, tokens_per_second=40)
    ask(talk, "One?")
    heard_something(talk)
    ask(talk, "Two?")
    talk.until(lambda: len(model.told) == 2, "the second answer")
    (_, first), (_, heard), (_, second) = model.told[1]
    assert (first, second) == ("One?", "Two?")
    assert (FIVE * 20).startswith(heard)
    talk("hush").click()
    assert talk("talk-error").text == ""


def test_stop_silences_at_once_and_the_next_prompt_tells_what_was_heard(talk, agent, server):
    engine = server.use(gated=True)
    agent.read(server, FIVE)
    ask(talk, "One?")
    talk.until(lambda: engine.started, "the first sentence in the engine")
    server.call(engine.allow, 1)
    heard_something(talk)
    talk("hush").click()
    talk.until(lambda: talk.seconds("buffered") == 0, "silence")
    heard = talk("heard").text
    talk.until(lambda: engine.cancelled, "the end of the synthesis")
    assert (talk("talk-status").text, talk("heard").text) == ("Stopped.", heard)
    assert talk("hush").get_attribute("aria-disabled") == "true"
    ask(talk, "Two?")
    talk.until(lambda: len(agent.asked) == 2, "the second prompt")
    assert agent.asked[1].heard_s > 0
    talk("hush").click()


def test_one_conversation_lasts_as_long_as_the_page(talk, agent, server):
    model = agent.read(server, TWO)
    for prompt in ("One?", "Two?"):
        ask(talk, prompt)
        done(talk)
    assert model.told[1] == [("user", "One?"), ("assistant", TWO), ("user", "Two?")]
    assert [request.heard_s for request in agent.asked] == [None, None]
    talk.open()
    talk.turn_to("talk")
    talk("agent").clear()
    talk("agent").send_keys(f"http://127.0.0.1:{agent.port}")
    ask(talk, "Three?")
    talk.until(lambda: len(model.told) == 3, "the third answer")
    assert model.told[2] == [("user", "Three?")]
    done(talk)


def test_what_a_model_writes_is_text_to_the_browser(talk, agent, server):
    text = 'It is <img src="nowhere" onerror="document.title = 1"> & <b>bold</b>.'
    agent.read(server, text)
    ask(talk, "<script>alert(1)</script>")
    done(talk)
    assert lines(talk, "answered") == [f"Agent {text}"]
    assert lines(talk, "asked") == ["You <script>alert(1)</script>"]
    assert talk.browser.find_elements(By.CSS_SELECTOR, "#conversation :is(img, script)") == []


def test_voice_and_speed_are_those_of_the_shared_controls(talk, agent, server):
    agent.read(server, TWO)
    talk.choose("voice", "bf_emma")
    talk("speed").send_keys(Keys.ARROW_RIGHT)
    ask(talk)
    done(talk)
    assert (agent.asked[0].voice, agent.asked[0].speed) == ("bf_emma", 1.05)


def test_an_agent_that_is_away_is_named_with_the_command_that_starts_it(talk, agent):
    talk("agent").clear()
    talk("agent").send_keys("http://127.0.0.1:1")
    ask(talk, "Hello?")
    assert failed(talk) == (
        "The agent at 127.0.0.1:1 cannot be reached. To start it: uv run --extra agent python -m agent --local"
    )
    assert talk("prompt").get_attribute("value") == "Hello?"  # to be sent again
    assert all("ERR_UNSAFE_PORT" in complaint or "ERR_CONNECTION" in complaint for complaint in talk.console())


def test_an_agent_that_refuses_this_page_is_told_from_one_that_is_away(talk, agent, server):
    agent.read(server, TWO, page_may_talk=False)
    ask(talk)
    assert failed(talk) == (
        f"The agent at 127.0.0.1:{agent.port} does not let this page talk to it. "
        f"Start it with VOICE_AGENT_CORS_ORIGINS=http://127.0.0.1:{talk.port} in its environment."
    )
    assert all("CORS" in complaint or "ERR_FAILED" in complaint for complaint in talk.console())


def test_an_address_that_the_page_may_not_talk_to_is_refused_before_anything_is_sent(talk):
    talk("agent").clear()
    talk("agent").send_keys("http://agent.example")
    ask(talk)
    assert talk("talk-error").text.startswith("The agent must be on this machine")
    assert talk.browser.switch_to.active_element.get_attribute("id") == "agent"
    assert lines(talk, "asked") == []


def test_the_browser_keeps_the_page_from_other_machines(talk):
    refused = talk.resolve(
        "const seen = new Promise((resolve) => document.addEventListener('securitypolicyviolation', resolve));"
        "await fetch('http://agent.example/invocations').catch(() => {}); return (await seen).effectiveDirective"
    )
    assert refused == "connect-src"
    assert all("Content Security Policy" in complaint for complaint in talk.console())


def test_a_blank_prompt_is_refused_before_it_is_sent(talk):
    ask(talk, " \n ")
    assert talk("talk-error").text == "There is no prompt to send."
    assert talk.browser.switch_to.active_element.get_attribute("id") == "prompt"


def test_a_request_that_the_agent_refuses_is_told_in_its_words(talk, agent, server):
    agent.read(server, TWO)
    talk.choose("voice", "other")
    talk("blend").clear()
    ask(talk)
    assert "a voice id, such as af_heart" in failed(talk)
    assert all("400" in complaint for complaint in talk.console())


def test_a_failure_of_the_speech_server_is_told_and_the_next_prompt_works(talk, agent, server):
    agent.read(server, TWO)
    talk.choose("voice", "other")
    talk("blend").clear()
    talk("blend").send_keys("af_hart")
    ask(talk)
    assert "af_heart" in failed(talk)
    talk.choose("voice", "af_heart")
    ask(talk)
    done(talk)
    assert talk("talk-error").text == ""


@pytest.mark.parametrize(
    ("breaks", "error"),
    [
        (False, "The connection ended in the middle of the answer."),
        (True, "The connection to the agent broke off in the middle of the answer."),
    ],
)
def test_an_answer_that_ends_too_soon_is_a_failure(talk, agent, breaks, error):
    async def half():
        yield encode_event(None, AgentStart("r", "bidi").dump())
        yield encode_event(None, TextDelta("r", 0, "I was about to").dump())
        if breaks:
            await shown.wait()
            raise ConnectionError

    shown = asyncio.Event()
    agent.play(lambda _: StreamingResponse(half(), media_type="text/event-stream"))
    ask(talk)
    talk.until(lambda: lines(talk, "answered") == ["Agent I was about to"], "the text")
    agent.call(shown.set)
    assert failed(talk) == error
    assert lines(talk, "note")[0].startswith("No answer was heard.")
    assert all("ERR_INCOMPLETE_CHUNKED_ENCODING" in complaint for complaint in talk.console())


def test_heard_s_waits_for_an_agent_that_takes_the_prompt(talk, agent, server):
    agent.read(server, FIVE * 3)
    ask(talk, "One?")
    heard_something(talk)
    real, bodies = agent.app, []

    async def refusing(request):
        bodies.append(json.loads(await request.body()))
        return JSONResponse({"error": "busy"}, 503)

    agent.play(refusing)
    ask(talk, "Two?")
    assert failed(talk) == "Busy."
    agent.app = real
    ask(talk, "Two again?")
    talk.until(lambda: len(agent.asked) == 2, "the prompt")
    assert agent.asked[1].heard_s == bodies[0]["heard_s"] > 0
    talk("hush").click()
    assert all("503" in complaint for complaint in talk.console())


def test_the_other_half_of_the_page_silences_this_one(talk, agent, server):
    agent.read(server, FIVE * 3)
    ask(talk)
    heard_something(talk)
    talk.turn_to("speak")
    assert (talk("heard").text, talk("level").get_attribute("value")) == ("0.0 s", "0")
    assert not talk("conversation").is_displayed()
    talk.write(TWO)
    talk("speak").click()
    talk.done()
    assert talk.seconds("heard") == 0.9


def test_keys_alone_do_everything(talk, agent, server):
    agent.read(server, FIVE * 3)
    keys = ActionChains(talk.browser)
    talk("prompt").click()
    keys.key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).send_keys("Hello?")
    keys.key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).send_keys("Again.", Keys.ENTER).perform()
    heard_something(talk)
    assert lines(talk, "asked") == ["You Hello?\nAgain."]
    ActionChains(talk.browser).send_keys(Keys.ESCAPE).perform()
    assert talk("talk-status").text == "Stopped."
    reached = []
    while not reached or reached[-1] != "conversation":
        ActionChains(talk.browser).send_keys(Keys.TAB).perform()
        focused = talk.browser.switch_to.active_element
        assert talk.run("return getComputedStyle(arguments[0]).outlineStyle", focused) == "solid"
        reached.append(focused.get_attribute("id") or focused.get_attribute("name"))
    assert reached == ["mode", "agent", "send", "hush", "conversation"]


def test_every_control_has_a_name_and_news_is_announced(talk):
    controls = talk.browser.find_elements(By.CSS_SELECTOR, "input, select, textarea, button, meter, [role]")
    shown = [control for control in controls if control.is_displayed()]
    assert len(shown) > 10
    nameless = [
        control.get_attribute("outerHTML")
        for control in shown
        if control.get_attribute("role") not in ("status", "alert") and not control.accessible_name
    ]
    assert nameless == []
    assert (talk("talk-status").get_attribute("aria-live"), talk("talk-error").get_attribute("role")) == (
        "polite",
        "alert",
    )
