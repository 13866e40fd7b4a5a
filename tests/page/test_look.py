"""How the page looks: widths and colours."""

import pytest

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


def test_no_width_scrolls_sideways(page, look):
    page.write("Supercalifragilisticexpialidocious" * 2 + ". And.")
    page("speak").click()
    page.until(lambda: page("streamed-first").text.endswith(" s"), "the first audio")
    for width in (320, 360, 768, 1280, 2000):
        look(width)
        content, window = page.run("return ['scrollWidth', 'clientWidth'].map((of) => document.documentElement[of])")
        assert content <= window, f"at {width} px"


def test_controls_are_large_enough_for_a_thumb(page, look):
    look(360)
    small = page.run(
        "return [...document.querySelectorAll('button, select, textarea, .choice, input[type=range]')]"
        ".filter((control) => control.checkVisibility() && control.getBoundingClientRect().height < 44)"
        ".map((control) => control.outerHTML)"
    )
    assert small == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(page, look, scheme):
    look(scheme=scheme)
    page.write("One two three. Four five.")
    page("speak").click()
    page.until(lambda: page.browser.find_elements("css selector", ".word.now"), "a word in the light")
    seen, low = page.run(CONTRASTS)
    assert seen > 30
    assert low == []
