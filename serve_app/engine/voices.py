"""Voice packs: read, checked, looked up by the id that a client gave."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from serve_app.engine.files import WeightsError
from serve_app.engine.types import MAX_PHONEMES
from serve_app.errors import UnknownVoice

STYLE_SIZE = 256
"""Numbers in one style row: 128 for the decoder, 128 for the prosody predictor."""

_PACK_SHAPE = (MAX_PHONEMES, 1, STYLE_SIZE)
_VOICE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class VoiceStore:
    """The voices that this process can speak with. Immutable; safe to share between threads.

    Args:
        packs: voice id to float32 [510, 1, 256]; may be views of a mapped file, which is then read as voices are used.
    """

    def __init__(self, packs: Mapping[str, Tensor]) -> None:
        self._packs = dict(packs)
        self.names: tuple[str, ...] = tuple(sorted(self._packs))

    def pack(self, name: str) -> Tensor:
        """The voice's styles, float32 [510, 1, 256]. Raises UnknownVoice."""
        pack = self._packs.get(name)
        if pack is None:
            raise UnknownVoice(_sentence(name, self.names))
        return pack

    def style(self, name: str, phonemes: int) -> Tensor:
        """The style of an utterance of `phonemes` tokens (1..510, without the two pads), float32 [1, 256].

        Raises:
            UnknownVoice.
            ValueError: no utterance has that many tokens.
        """
        if not 1 <= phonemes <= MAX_PHONEMES:
            raise ValueError(f"{phonemes} phoneme tokens; one forward pass takes 1..{MAX_PHONEMES}")
        return self.pack(name)[phonemes - 1]


def _sentence(name: str, names: tuple[str, ...]) -> str:
    # A name is echoed only if it could be one: anything else is the client's free text.
    shown = f" {name}" if _VOICE_ID.fullmatch(name) else ""
    near = difflib.get_close_matches(name[:64].lower(), names, n=3, cutoff=0.5)
    hint = f"near matches: {', '.join(near)}" if near else f"{len(names)} voices are there, such as {names[0]}"
    return f"there is no voice{shown}; {hint}" if names else f"there is no voice{shown}"


def check_pack(pack: object, what: str) -> Tensor:
    """Return `pack` if it is a voice: finite float32 [510, 1, 256].

    Args:
        what: names the origin in the message.
    Raises:
        WeightsError.
    """
    if not isinstance(pack, Tensor) or pack.shape != _PACK_SHAPE or pack.dtype != torch.float32:
        found = f"{pack.dtype} {list(pack.shape)}" if isinstance(pack, Tensor) else type(pack).__name__
        raise WeightsError(
            f"{what} is not a Kokoro voice: {found} instead of float32 {list(_PACK_SHAPE)}; fetch it again"
        )
    if not torch.isfinite(pack.sum()):
        raise WeightsError(f"{what} holds numbers that are not finite; the file is damaged, fetch it again")
    return pack


def read_voice_folder(folder: Path) -> VoiceStore:
    """Read the official layout's `voices/NAME.pt`, each checked and mapped into memory.

    Raises:
        WeightsError: no voice there, a name that clients could not ask for, or a file that is not a voice.
    """
    packs: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.pt")):
        if not _VOICE_ID.fullmatch(path.stem):
            raise WeightsError(f"{path} is no voice name; use letters, digits, '_' and '-' only, or remove the file")
        try:
            pack = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as exc:  # a damaged zip or pickle raises nearly anything
            raise WeightsError(f"{path} is not a voice file ({type(exc).__name__}); fetch it again") from exc
        packs[path.stem] = check_pack(pack, str(path))
    if not packs:
        raise WeightsError(f"there is no voice in {folder}; put the official voices/NAME.pt files there")
    return VoiceStore(packs)
