"""scripts/synthesize_corpus.py over an engine of tones: for tests, and for what is not about the model.

    python -m scripts.tones_corpus IN OUT [as for the real one]

A segment takes TONES_COST_S seconds (an environment variable, 0.1 by default) and no core.
"""

import hashlib
import os
import sys

from scripts.corpus.speaking import Identity
from scripts.fake_app import FakeFrontEnd
from scripts.synthesize_corpus import main
from serve_app.config import Settings
from serve_app.engine.fake import VOICES, FakeEngine


class Tones:
    """A `Model`."""

    @staticmethod
    def identify(settings: Settings) -> Identity:
        return Identity("tones", hashlib.sha256(b"tones").hexdigest(), VOICES)

    @staticmethod
    def load(settings: Settings) -> tuple[FakeFrontEnd, FakeEngine]:
        cost_s = float(os.environ.get("TONES_COST_S", "0.1"))
        return FakeFrontEnd(), FakeEngine(cost_s=cost_s, max_queue=settings.engine.max_queue)


if __name__ == "__main__":
    from scripts.tones_corpus import Tones as Importable  # workers import it by this name, and not by __main__

    sys.exit(main(model=Importable))
