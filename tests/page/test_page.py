"""The page as a person meets it: real clicks and keys in a real browser, real sockets, sound that is rendered."""

import httpx
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from starlette.websockets import WebSocket
from websockets.sync.client import connect

from serve_app.errors import Internal

TWO = "One two three. Four five."
FIVE = "The first one. The second one. The third one. The fourth one. The fifth one."

LIT = """
    window.lit = [];
    new MutationObserver(() => {
        const now = document.querySelector('.word.now')?.textContent;
        if (now && now !== lit.at(-1)) lit.push(now);
    }).observe(document.getElementById('transcript'), { subtree: true, attributes: true, attributeFilter: ['class'] });
"""


def assert_heard_whole(page, server, text):
    """As much has been heard as the server says that there is."""
    server.use()
    body = {"text": text, "stream": False}
    answer = httpx.post(f"http://127.0.0.1:{page.port}/invocations", json=body)
    assert page.seconds("heard") == pytest.approx(float(answer.headers["X-Audio-Duration"]), abs=0.051)


def hear(page, text, *, compare=False):
    """Write a text and press Speak."""
    page.write(text)
    if page("compare").is_selected() != compare:
        page("compare").click()
    page("speak").click()


def sounds(page):
    return float(page("level").get_attribute("value")) > 0.1


def test_audio_arrives_and_is_played_to_its_end(page, server):
    hear(page, TWO)
    page.until(lambda: sounds(page), "energy in the samples that were rendered")
    page.done()
    assert_heard_whole(page, server, TWO)
    assert (page("gaps").text, page.seconds("buffered"), page("error").text) == ("0", 0, "")


def test_speech_is_heard_while_later_sentences_do_not_exist(page, server):
    engine = server.use(gated=True)
    hear(page, FIVE)
    page.until(lambda: engine.started, "the first sentence in the engine")
    server.call(engine.allow, 1)
    page.until(lambda: page.seconds("heard") > 0, "the first sound")
    assert len(engine.finished) == 1
    page.until(lambda: page("gaps").text == "1", "the gap after the only sentence that was there")
    heard_s = page.seconds("heard")
    server.call(engine.allow, 4)
    page.until(lambda: page.seconds("heard") > heard_s, "the second sentence")


def test_words_light_up_one_after_the_other(page):
    page.run(LIT)
    hear(page, TWO)
    page.until(lambda: page.run("return lit.length") > 1, "two words in the light")
    page.done()
    lit = page.run("return lit")
    words = TWO.split()
    assert lit == [word for word in words if word in lit]
    assert [mark.text for mark in page.browser.find_elements(By.CSS_SELECTOR, ".word.said:not(.now)")] == words
    assert page("transcript").text == TWO


def test_stop_silences_at_once_and_tells_the_server(page, server):
    engine = server.use(gated=True)
    hear(page, FIVE)
    page.until(lambda: engine.started, "the first sentence in the engine")
    server.call(engine.allow, 1)
    page.until(lambda: sounds(page), "sound")
    page("stop").click()
    heard = page("heard").text
    page.until(lambda: "dropped the rest" in page("status").text, "the server's answer to the cancel")
    assert len(engine.cancelled) == 2  # what it had been given ahead
    # The loudspeaker runs on, and plays nothing more.
    page.resolve(
        "const { sound } = await import('/page/playback.js'), begin_s = sound.clock_s;"
        "while (sound.clock_s < begin_s + 0.3) await new Promise(requestAnimationFrame);"
    )
    assert (page("heard").text, page.seconds("buffered")) == (heard, 0)
    assert len(engine.finished) == 1


def test_speaking_again_interrupts_and_none_of_the_old_text_is_heard(page, server):
    hear(page, FIVE)
    page.until(lambda: sounds(page), "sound")
    hear(page, TWO)
    page.done()
    assert_heard_whole(page, server, TWO)
    assert page("transcript").text == TWO


def test_text_that_is_still_being_written_is_already_spoken(page):
    page.browser.find_element(By.CSS_SELECTOR, "[value=written]").click()
    page("pace").send_keys(Keys.CONTROL, "a")
    page("pace").send_keys("10")
    hear(page, FIVE, compare=True)
    page.until(lambda: page.seconds("heard") > 0, "the first sound")
    assert len(page("transcript").text) < len(FIVE)
    page.until(lambda: page("batch-first").text.endswith(" s"), "the same text in batch")
    # A batch cannot begin before the last of 15 words, ten a second, has been written.
    assert page.seconds("streamed-first") < 1.4 <= page.seconds("batch-first")
    assert "sooner" in page("verdict").text


def test_stop_in_the_middle_of_writing_leaves_a_session_that_speaks(page):
    page.browser.find_element(By.CSS_SELECTOR, "[value=written]").click()
    hear(page, "Short one. " + FIVE)
    page.until(lambda: page.seconds("heard") > 0, "the first sound")
    page("stop").click()
    written = page("transcript").text
    assert len(written) < len(FIVE)
    page.until(lambda: "dropped the rest" in page("status").text, "the server's answer to the cancel")
    assert page("transcript").text == written
    page.browser.find_element(By.CSS_SELECTOR, "[value=whole]").click()
    hear(page, TWO)
    page.until(lambda: sounds(page), "sound in the same session")
    assert page("error").text == ""


def test_http_events_carry_the_same_speech_and_words(page, server):
    page.choose("via", "events")
    page.run(LIT)
    hear(page, TWO)
    page.done()
    assert_heard_whole(page, server, TWO)
    assert page.run("return lit.length") > 1


def test_stop_ends_a_request_over_http(page, server):
    engine = server.use(gated=True)
    page.choose("via", "events")
    hear(page, FIVE)
    page.until(lambda: engine.started, "the first sentence in the engine")
    page("stop").click()
    page.until(lambda: engine.cancelled, "the end of the synthesis")
    assert (page("status").text, page("error").text) == ("Stopped after 0.0 s of speech.", "")


def test_batch_is_silent_until_all_of_it_is_there_and_both_times_stand_side_by_side(page, server):
    engine = server.use(gated=True)
    page.write(FIVE)
    page("batch").click()
    page.until(lambda: engine.started, "the first sentence in the engine")
    server.call(engine.allow, 4)
    page.until(lambda: len(engine.finished) == 4, "four of five sentences")
    assert (page.seconds("heard"), page("streamed-first").text) == (0, "–")
    server.call(engine.allow, 100)
    page.until(lambda: sounds(page), "sound")
    hear(page, FIVE)
    page.until(lambda: page("verdict").text, "the comparison")
    assert page.seconds("streamed-first") > 0 < page.seconds("batch-first")
    page("stop").click()


def test_the_timeline_is_told_in_words_too(page):
    hear(page, TWO)
    page.done()
    page.browser.find_element(By.TAG_NAME, "summary").click()
    lines = [line.text.split(" s", 1)[1].strip() for line in page("streamed-list").find_elements(By.TAG_NAME, "li")]
    assert sorted(lines) == [
        "all 0.9 s of audio are here",
        "first audio is here",
        "sentence 1 arrives (3 words)",
        "sentence 1 is heard",
        "sentence 2 arrives (2 words)",
        "sentence 2 is heard",
        "text sent, 25 characters",
    ]
    drawn = "const c = document.getElementById('timeline'); return c.getContext('2d')"
    assert page.run(f"{drawn}.getImageData(0, 0, c.width, c.height).data.some((value) => value > 0)")


def test_an_unreachable_server_is_named_and_the_next_press_reconnects(page, server):
    hear(page, TWO)
    page.until(lambda: sounds(page), "sound")
    page("stop").click()
    server.stop()
    page("speak").click()
    page.until(lambda: page("error").text, "the error")
    assert page("error").text.startswith(f"The server at 127.0.0.1:{server.port} cannot be reached.")
    assert page("stop").get_attribute("aria-disabled") == "true"
    assert all("ERR_CONNECTION_REFUSED" in complaint for complaint in page.console())
    server.start()
    page("speak").click()
    page.until(lambda: sounds(page), "sound from a new session")
    assert page("error").text == ""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1001, "The server is shutting down or has let an idle session go."),
        (1013, "The server is full; try again in a moment."),
        (4321, "The server closed the session (code 4321)."),
    ],
)
def test_a_session_that_the_server_closes_is_explained(page, server, code, words):
    real = server.app

    async def closing(scope, receive, send):
        if scope["type"] != "websocket":
            return await real(scope, receive, send)
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        await socket.receive()
        await socket.close(code)

    server.app = closing
    hear(page, TWO)
    page.until(lambda: page("error").text, "the error")
    assert page("error").text == words
    server.app = real
    hear(page, TWO)
    page.until(lambda: sounds(page), "sound from a new session")
    assert page("error").text == ""


def test_a_server_without_a_free_session_is_told_from_one_that_is_away(page, server):
    server.use(max_sessions=1)
    with connect(f"ws://127.0.0.1:{server.port}/invocations-bidirectional-stream"):
        hear(page, TWO)
        page.until(lambda: page("error").text, "the error")
    assert page("error").text.startswith("The server is there but did not open a session.")
    assert all("WebSocket connection" in complaint for complaint in page.console())


def test_a_server_that_cannot_speak_is_quoted(page, server):
    engine = server.use()
    engine.break_down()
    hear(page, TWO)
    page.until(lambda: page("error").text, "the error")
    assert page("error").text == "The speech engine is stuck in a synthesis."


@pytest.mark.parametrize("via", ["socket", "events"])
def test_a_failure_amid_the_speech_is_told_and_what_had_come_is_heard(page, server, via):
    engine = server.use(gated=True)
    page.choose("via", via)
    hear(page, FIVE)
    page.until(lambda: engine.started, "the first sentence in the engine")
    server.call(engine.allow, 1)
    page.until(lambda: len(engine.started) == 2, "the second sentence in the engine")
    server.call(engine.fail_next, Internal("the model tripped"))
    server.call(engine.allow, 1)
    page.until(lambda: page("error").text, "the error")
    assert page("error").text == "The model tripped."
    page.until(lambda: page.run("return document.body.dataset.state") == "idle", "the end")
    assert_heard_whole(page, server, "The first one.")


def test_an_unknown_voice_is_answered_with_those_that_are_near(page):
    page.choose("voice", "other")
    page("blend").clear()
    page("blend").send_keys("af_hart")
    hear(page, TWO)
    page.until(lambda: page("error").text, "the error")
    assert "af_heart" in page("error").text


def test_the_list_of_voices_is_the_servers(page):
    voices = page("voice").find_elements(By.TAG_NAME, "option")
    assert [voice.get_attribute("value") for voice in voices] == ["af_heart", "af_bella", "bf_emma", "other"]
    groups = page("voice").find_elements(By.TAG_NAME, "optgroup")
    assert [group.get_attribute("label") for group in groups] == ["American English", "British English"]


def test_a_server_without_a_list_of_voices_leaves_the_well_known_ones(page, server):
    real = server.app

    async def without_list(scope, receive, send):
        if scope.get("path") == "/v1/audio/voices":
            scope = {**scope, "path": "/nowhere", "raw_path": b"/nowhere"}
        await real(scope, receive, send)

    server.app = without_list
    page.open()
    assert "af_heart" in page("voice").text
    assert all("404" in complaint for complaint in page.console())
    hear(page, TWO)
    page.until(lambda: sounds(page), "sound")


@pytest.mark.parametrize("text", ["", "  \n "])
def test_a_blank_text_is_refused_before_it_is_sent(page, text):
    hear(page, text)
    assert page("error").text == "There is no text to speak."
    assert page.browser.switch_to.active_element.get_attribute("id") == "text"


def test_a_text_without_a_word_ends_without_sound(page):
    hear(page, "…")
    page.until(lambda: page("status").text == "There is nothing to speak in this text.", "the end")
    assert page("stop").get_attribute("aria-disabled") == "true"


def test_keys_alone_do_everything(page):
    keys = ActionChains(page.browser)
    keys.send_keys(Keys.TAB * 4).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).send_keys(FIVE).perform()
    assert page.browser.switch_to.active_element.get_attribute("id") == "text"
    reached = []
    while not reached or reached[-1] != "batch":
        ActionChains(page.browser).send_keys(Keys.TAB).perform()
        focused = page.browser.switch_to.active_element
        assert page.run("return getComputedStyle(arguments[0]).outlineStyle", focused) == "solid"
        reached.append(focused.get_attribute("id") or focused.get_attribute("name"))
    assert reached == ["arrival", "via", "speak", "stop", "batch"]
    back_to_speak = ActionChains(page.browser).key_down(Keys.SHIFT).send_keys(Keys.TAB * 2).key_up(Keys.SHIFT)
    shortcut = ActionChains(page.browser).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL)
    for keys in (back_to_speak.send_keys(Keys.SPACE), shortcut):
        keys.perform()
        page.until(lambda: sounds(page), "sound")
        ActionChains(page.browser).send_keys(Keys.ESCAPE).perform()
        page.until(lambda: page("status").text.startswith("Stopped"), "silence")


def test_every_control_has_a_name_and_news_is_announced(page):
    controls = page.browser.find_elements(By.CSS_SELECTOR, "input, select, textarea, button, meter, canvas, [role]")
    assert len(controls) > 12
    nameless = [
        control.get_attribute("outerHTML")
        for control in controls
        if control.is_displayed()
        and control.get_attribute("role") not in ("status", "alert")
        and not control.accessible_name
    ]
    assert nameless == []
    assert (page("status").get_attribute("aria-live"), page("error").get_attribute("role")) == ("polite", "alert")


def test_nothing_comes_from_elsewhere(page):
    loaded = page.run("return performance.getEntriesByType('resource').map((entry) => new URL(entry.name).origin)")
    assert loaded
    assert set(loaded) == {f"http://127.0.0.1:{page.port}"}


def test_plain_http_from_another_machine_plays_too(page, server):
    """There, browsers offer no AudioWorklet."""
    page.open("speech.test")
    assert page.run("return [isSecureContext, 'audioWorklet' in AudioContext.prototype]") == [False, False]
    hear(page, TWO)
    page.until(lambda: sounds(page), "energy in the samples that were rendered")
    page.done()
    assert_heard_whole(page, server, TWO)
    assert [complaint for complaint in page.console() if "ScriptProcessorNode is deprecated" not in complaint] == []
