import pickle
import re
from pathlib import Path

import pytest

from serve_app.errors import TABLE, QueueSaturated, SpeechError, UnknownVoice

DOCUMENT = (Path(__file__).resolve().parent.parent / "docs" / "api.md").read_text()


def test_every_error_is_in_the_table_and_in_the_document():
    ours = [error for error in SpeechError.__subclasses__() if error.__module__ == "serve_app.errors"]
    assert set(TABLE) == set(ours)
    rows = re.findall(r"^\| `([a-z_]+)` \|([^|]*)\|", DOCUMENT[DOCUMENT.index("## Errors") :], re.MULTILINE)
    documented = {code: status.strip() for code, status in rows}
    assert set(documented) == {error.code for error in TABLE}
    for error in TABLE:
        if documented[error.code]:
            assert documented[error.code].split(",")[0] == str(error.http_status)
            assert ("Retry-After" in documented[error.code]) == (error.retry_after_s is not None)


@pytest.mark.parametrize("error", TABLE)
def test_an_error_crosses_processes_whole(error):
    sent = error("said to a person")
    sent.request_id = "r1"
    received = pickle.loads(pickle.dumps(sent))
    assert type(received) is error
    assert (received.message, received.request_id, str(received)) == ("said to a person", "r1", "said to a person")


def test_a_refusal_may_know_better_when_to_come_back_and_takes_it_across_processes():
    told = pickle.loads(pickle.dumps(QueueSaturated("busy", 12)))
    assert (told.retry_after_s, QueueSaturated("busy").retry_after_s) == (12, 1)


@pytest.mark.parametrize(
    ("voice", "said"), [("af_hart", "af_heart"), ("zz", "known voices include"), ("a" * 500, "known")]
)
def test_an_unknown_voice_is_told_what_there_is(voice, said):
    message = UnknownVoice.among(voice, ["af_heart", "bf_emma"]).message
    assert said in message
    assert len(message) < 300
