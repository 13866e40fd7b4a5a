"""Japanese and Mandarin Chinese through misaki, where its extras are installed. Words are not told apart."""

from collections.abc import Sequence

from serve_app.text.normalize import Word
from serve_app.text.split import Part

PACKAGES = {"j": "misaki[ja]", "z": "misaki[zh]"}
LANGUAGES = tuple(PACKAGES)


class NotInstalled(Exception):
    """The extra of misaki for the language, or its dictionary, is missing."""


class EastAsian:
    """Raises NotInstalled."""

    def __init__(self, lang: str) -> None:
        try:
            if lang == "j":
                from misaki import ja

                self._g2p = ja.JAG2P()
            else:
                from misaki import zh

                self._g2p = zh.ZHG2P()
        except (ImportError, OSError, RuntimeError) as exc:  # unidic without its dictionary: RuntimeError
            raise NotInstalled(PACKAGES[lang]) from exc

    def parts(self, words: Sequence[Word]) -> list[Part]:
        phonemes, _ = self._g2p(" ".join(word.spoken for word in words if word.spoken))
        return [(-1, phonemes)]
