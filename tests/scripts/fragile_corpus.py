"""scripts/tones_corpus.py whose first engine is gone with its first row, and which cannot speak utt7 for a while.

FRAGILE_FOLDER has a file `hindered` as long as that lasts.
"""

import os
import sys
from pathlib import Path

from scripts.fake_app import FakeFrontEnd
from scripts.synthesize_corpus import main
from scripts.tones_corpus import Tones
from serve_app.config import Settings
from serve_app.engine.fake import FakeEngine
from serve_app.engine.types import AudioChunk, Segment
from serve_app.errors import Internal


class FragileEngine(FakeEngine):
    async def synthesize(self, segment: Segment) -> AudioChunk:
        folder = Path(os.environ["FRAGILE_FOLDER"])
        try:
            (folder / "was gone").touch(exist_ok=False)
        except FileExistsError:
            if segment.session_id == "utt7" and (folder / "hindered").exists():
                raise Internal("The speech model failed on a part of the text.") from None
        else:
            self.break_down()
        return await super().synthesize(segment)


class Fragile(Tones):
    @staticmethod
    def load(settings: Settings) -> tuple[FakeFrontEnd, FakeEngine]:
        return FakeFrontEnd(), FragileEngine(cost_s=0.4)  # so slow that it is still at work when its test looks


if __name__ == "__main__":
    from tests.scripts.fragile_corpus import Fragile as Importable  # see scripts/tones_corpus.py

    sys.exit(main(model=Importable))
