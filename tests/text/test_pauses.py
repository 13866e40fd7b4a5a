import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.text.pauses import MAX_PAUSE_S, split_at_pauses


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        ("No pause here.", ["No pause here."]),
        ("One [pause:300ms] two.", ["One", 0.3, "two."]),
        ("One[pause:1.5s]two.", ["One", 1.5, "two."]),
        ("One [PAUSE: 1S] two.", ["One", 1.0, "two."]),
        ("One [Pause:.5s] two [pause:2.s] three", ["One", 0.5, "two", 2.0, "three"]),
        ("[pause:1s] One.", [1.0, "One."]),
        ("One. [pause:1s]", ["One.", 1.0]),
        ("[pause:1s][pause:20ms] [pause:0s]", [1.0, 0.02, 0.0]),
        ("One [pause:11s] two [pause:99999999999ms].", ["One", 10.0, "two.", 10.0]),
        (f"One [pause:{'9' * 5000}s] two", ["One", 10.0, "two"]),
        ("你好[pause:1s]。再见", ["你好。", 1.0, "再见"]),
        ("", []),
        ("  ", []),
    ],
)
def test_a_pause_splits_its_sentence(sentence, parts):
    assert split_at_pauses(sentence) == parts


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        ("One [pause:1s], two.", ["One,", 1.0, "two."]),
        ("Is it [pause:1s] ?!", ["Is it?!", 1.0]),
        ("One [pause:1s]... two", ["One...", 1.0, "two"]),
        ("Take [pause:1s] .5 litres", ["Take", 1.0, ".5 litres"]),
    ],
)
def test_punctuation_behind_a_mark_belongs_to_the_words_before_it(sentence, parts):
    assert split_at_pauses(sentence) == parts


@pytest.mark.parametrize(
    "mark",
    ["[pause]", "[pause:]", "[pause:1]", "[pause:-1s]", "[pause:1,5s]", "[pause:1e3s]", "(pause:1s)", "[pause 1s]"],
)
def test_what_is_no_mark_is_text(mark):
    assert split_at_pauses(f"One {mark} two") == [f"One {mark} two"]


@given(st.lists(st.sampled_from(["[pause:", "[pause:1s]", "1", ".", "m", "s", "]", " ", "٣", "one", ",", "…"])))
def test_nothing_but_marks_and_blanks_is_lost_and_every_pause_is_bounded(words):
    sentence = "".join(words)
    parts = split_at_pauses(sentence)
    assert all(0 <= part <= MAX_PAUSE_S for part in parts if isinstance(part, float))
    texts = [part for part in parts if isinstance(part, str)]
    assert all(part.strip() for part in texts)
    assert "".join("".join(texts).split()) == "".join(sentence.replace("[pause:1s]", "").split()) or "٣" in sentence
