"""scripts/synthesize_corpus.py over an engine of tones, whose rows take as long as `COST_S` says."""

import hashlib
import sys

from scripts.corpus.speaking import Identity
from scripts.fake_app import FakeFrontEnd
from scripts.synthesize_corpus import main
from serve_app.config import Settings
from serve_app.engine.fake import VOICES, FakeEngine

COST_S = 0.1


class Tones:
    """A `Model`."""

    @staticmethod
    def identify(settings: Settings) -> Identity:
        return Identity("tones", hashlib.sha256(b"tones").hexdigest(), VOICES)

    @staticmethod
    def load(settings: Settings) -> tuple[FakeFrontEnd, FakeEngine]:
        return FakeFrontEnd(), FakeEngine(cost_s=COST_S)


if __name__ == "__main__":
    from tests.scripts.tones_corpus import Tones as Importable  # workers import it by this name, and not by __main__

    sys.exit(main(model=Importable))
