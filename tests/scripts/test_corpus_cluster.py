"""An actor of the pool, called as Ray Data calls it; over Ray itself in test_synthesize_corpus.py."""

from scripts.corpus.cluster import ATTEMPTS, Job, PartSpeaker, Tally, part_table
from scripts.corpus.parts import committed, part_path
from scripts.corpus.plan import Part
from scripts.corpus.progress import Amount
from scripts.corpus.rows import Row
from scripts.corpus.speaking import Identity, Manner, offline
from scripts.fake_app import FakeFrontEnd
from scripts.tones_corpus import Tones
from serve_app.config import load_settings
from serve_app.engine.fake import FakeEngine
from serve_app.errors import Internal

SETTINGS = offline(load_settings({}, {}), threads=1, max_batch=1, on_gpu=False)
PART = Part(3, tuple(Row(name, number, "c.txt", "Hi.", "af_heart", 1.0, None) for number, name in enumerate("ab", 1)))


class FailsOnB(Tones):
    """At the row b, whenever it is tried."""

    @staticmethod
    def load(settings):
        class Engine(FakeEngine):
            async def synthesize(self, segment):
                if segment.session_id == "b":
                    raise Internal("The speech model failed on a part of the text.")
                return await super().synthesize(segment)

        return FakeFrontEnd(), Engine()


def answer(out, model=Tones, identity=None, tally=None):
    manner = Manner("wav", 24_000, True, "1", "2026-01-01T00:00:00+00:00")
    job = Job(model, SETTINGS, identity or Tones.identify(SETTINGS), manner, out, audio_files=False)
    [row] = PartSpeaker(job, tally or Tally())(part_table(PART)).to_pylist()
    return row["failure"]


def test_a_part_is_committed_where_it_is_spoken_and_each_row_counted(tmp_path):
    tally = Tally()
    assert answer(tmp_path, tally=tally) is None
    [(index, footer)] = committed(tmp_path).items()
    assert (index, footer.spoken) == (3, 2)
    done, elapsed_s = tally.total()
    assert done == Amount(2, 6, footer.audio_s)
    assert elapsed_s > 0


def test_a_row_that_is_left_is_the_only_one_to_be_spoken_the_next_time(tmp_path):
    assert answer(tmp_path / "at once") is None
    assert answer(tmp_path / "out", FailsOnB) is None
    [footer] = committed(tmp_path / "out").values()
    assert (footer.spoken, [row.id for row in footer.left]) == (1, ["b"])
    tally = Tally()
    assert answer(tmp_path / "out", tally=tally) is None
    assert tally.total()[0].rows == 1
    assert part_path(tmp_path / "out", 3).read_bytes() == part_path(tmp_path / "at once", 3).read_bytes()


def test_a_part_whose_workers_are_lost_each_time_is_left_to_another_run(tmp_path):
    tally = Tally()
    for _ in range(ATTEMPTS):
        tally.attempt(3)
    assert answer(tmp_path, tally=tally) is None
    [footer] = committed(tmp_path).values()
    assert [(row.id, row.code) for row in footer.left] == [("a", "engine_unavailable"), ("b", "engine_unavailable")]
    assert answer(tmp_path) is None
    [footer] = committed(tmp_path).values()
    assert (footer.spoken, footer.left) == (2, ())


def test_a_worker_with_other_weights_speaks_nothing(tmp_path):
    assert "a worker has other weights" in answer(tmp_path, identity=Identity("others", "1", ()))
    assert committed(tmp_path) == {}


def test_an_output_that_cannot_be_written_is_the_answer(tmp_path):
    (tmp_path / "out").touch()
    assert answer(tmp_path / "out") == "the output cannot be written (Not a directory)"
