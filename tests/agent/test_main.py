"""`python -m agent`."""

import sys

import pytest

from agent.__main__ import main


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tts-endpoint", "not a name"], "an endpoint's name"),
        (["--tts-endpoint", "http://"], "address"),
        (["--model-options", "{"], "Expecting"),
    ],
)
def test_what_cannot_start_ends_with_a_sentence(monkeypatch, options, said):
    monkeypatch.setattr(sys, "argv", ["agent", "--local", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value.code).startswith("agent: ")
    assert said in str(ended.value.code)
