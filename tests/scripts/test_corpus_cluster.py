"""An actor of the pool, called as Ray Data calls it; over Ray itself in test_synthesize_corpus.py."""

from types import SimpleNamespace

import pytest

from scripts.corpus.cluster import Job, PartSpeaker, part_table
from scripts.corpus.parts import committed
from scripts.corpus.plan import Part
from scripts.corpus.progress import Amount
from scripts.corpus.rows import Row
from scripts.corpus.speaking import Identity, Manner, offline
from scripts.fake_app import FakeFrontEnd
from serve_app.config import load_settings
from serve_app.engine.fake import FakeEngine
from tests.scripts.tones_corpus import Tones

SETTINGS = offline(load_settings({}, {}), threads=1, max_batch=1, on_gpu=False)
PART = Part(3, tuple(Row(name, number, "c.txt", "Hi.", "af_heart", 1.0, None) for number, name in enumerate("ab", 1)))


class Stuck(Tones):
    @staticmethod
    def load(settings):
        engine = FakeEngine()
        engine.break_down()
        return FakeFrontEnd(), engine


@pytest.fixture
def told():
    """What an actor says to the tally."""
    return []


@pytest.fixture
def tally(told):
    return SimpleNamespace(
        begin=SimpleNamespace(remote=lambda: told.append("begin")),
        tell=SimpleNamespace(remote=lambda part, amount: told.append((part, amount))),
    )


def answer(tally, out, model=Tones, identity=None):
    manner = Manner("wav", 24_000, True, "1", "2026-01-01T00:00:00+00:00")
    job = Job(model, SETTINGS, identity or model.identify(SETTINGS), manner, out, audio_files=False)
    [row] = PartSpeaker(job, tally)(part_table(PART)).to_pylist()
    return row["failure"]


def test_a_part_is_committed_where_it_is_spoken_and_each_row_counted(tmp_path, tally, told):
    assert answer(tally, tmp_path) is None
    [(index, footer)] = committed(tmp_path).items()
    assert (index, footer.spoken) == (3, 2)
    assert told[0] == "begin"
    assert told[1:] == [(3, Amount(1, 3, footer.audio_s / 2)), (3, Amount(2, 6, footer.audio_s))]


def test_an_engine_that_cannot_speak_is_the_answer_and_no_part(tmp_path, tally):
    assert answer(tally, tmp_path, Stuck) == "The speech engine is stuck in a synthesis."
    assert committed(tmp_path) == {}


def test_a_worker_with_other_weights_speaks_nothing(tmp_path, tally):
    assert "a worker has other weights" in answer(tally, tmp_path, identity=Identity("others", "1", ()))
    assert committed(tmp_path) == {}


def test_an_output_that_cannot_be_written_is_the_answer(tmp_path, tally):
    (tmp_path / "out").touch()
    assert answer(tally, tmp_path / "out") == "the output cannot be written (Not a directory)"
