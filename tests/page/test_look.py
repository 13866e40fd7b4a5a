"""How the page looks: widths and colours."""

import pytest

HALVES = ("speak", "talk")
LONG_WORD = "Supercalifragilisticexpialidocious" * 2

CONTRASTS = """
    const luminance = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map((part) => part / 255)
            .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const backdrop = (element) => {
        for (; element; element = element.parentElement) {
            const colour = getComputedStyle(element).backgroundColor;
            if (!/, 0\\)$/.test(colour)) return colour;
        }
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), low = [];
    let seen = 0;
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
        if (element.closest('[aria-disabled=true]')) continue;
        const pair = [luminance(getComputedStyle(element).color), luminance(backdrop(element))].sort((a, b) => b - a);
        const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
        seen += 1;
        if (ratio < 4.5) low.push([walker.currentNode.data.trim(), ratio]);
    }
    return [seen, low];
"""


@pytest.fixture
def look(page):
    """Set the device's width and colour scheme."""

    def look(width=1200, scheme="light"):
        page.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700},
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    yield look
    page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def assert_fits_every_width(page, look):
    for width in (320, 360, 768, 1280, 2000):
        look(width)
        content, window = page.run("return ['scrollWidth', 'clientWidth'].map((of) => document.documentElement[of])")
        assert content <= window, f"at {width} px"


def test_no_width_scrolls_sideways(page, look):
    page.write(f"{LONG_WORD}. And.")
    page("speak").click()
    page.until(lambda: page("streamed-first").text.endswith(" s"), "the first audio")
    assert_fits_every_width(page, look)


@pytest.mark.parametrize("half", HALVES)
def test_controls_are_large_enough_for_a_thumb(page, look, half):
    page.turn_to(half)
    look(360)
    small = page.run(
        "return [...document.querySelectorAll('button, select, textarea, .choice, input[type=range]')]"
        ".filter((control) => control.checkVisibility() && control.getBoundingClientRect().height < 44)"
        ".map((control) => control.outerHTML)"
    )
    assert small == []


def test_a_conversation_scrolls_sideways_at_no_width(page, look):
    page.turn_to("talk")
    page("agent").clear()
    page("agent").send_keys("127.0.0.1:1/" + "path" * 30)
    page.run("document.getElementById('prompt').value = arguments[0]", LONG_WORD)
    page("send").click()
    page.until(lambda: page("talk-error").text, "the error")
    page.console()
    assert_fits_every_width(page, look)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(page, look, scheme):
    look(scheme=scheme)
    page.write("One two three. Four five.")
    page("speak").click()
    page.until(lambda: page.browser.find_elements("css selector", ".word.now"), "a word in the light")
    seen, low = page.run(CONTRASTS)
    assert seen > 30
    assert low == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_of_a_conversation_stands_out_from_its_ground(page, look, scheme):
    look(scheme=scheme)
    page.turn_to("talk")
    page("agent").clear()
    page("agent").send_keys("127.0.0.1:1")
    page("send").click()
    page.until(lambda: page("talk-error").text, "the error")
    page.console()
    seen, low = page.run(CONTRASTS)
    assert seen > 30
    assert low == []
