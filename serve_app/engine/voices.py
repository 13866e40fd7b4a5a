"""Voice packs: read, checked, looked up by the id that a client gave."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from serve_app.blends import check_voice, parse_blend
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

    def check(self, voice: str) -> None:
        """Raise UnknownVoice, or BadRequest for an ill-formed blend, unless `style` knows the voice. Does no maths."""
        check_voice(voice, self._packs)

    def pack(self, name: str) -> Tensor:
        """The styles of one voice, not of a blend, float32 [510, 1, 256]. Raises UnknownVoice."""
        if name not in self._packs:
            raise UnknownVoice.among(name, self._packs)
        return self._packs[name]

    def style(self, voice: str, phonemes: int) -> Tensor:
        """The style of an utterance of `phonemes` tokens (1..510, without the two pads), float32 [1, 256].

        A blend's style is the mean of its voices' styles for that length, weighted by their shares: that row of the
        blended pack, and a thousand multiplications are cheaper than keeping packs for every blend that clients think
        of.

        Raises:
            UnknownVoice, BadRequest.
            ValueError: no utterance has that many tokens.
        """
        if not 1 <= phonemes <= MAX_PHONEMES:
            raise ValueError(f"{phonemes} phoneme tokens; one forward pass takes 1..{MAX_PHONEMES}")
        self.check(voice)
        # By name, so that a blend sounds the same in whatever order it is written.
        styles = [self._packs[name][phonemes - 1] * share for name, share in sorted(parse_blend(voice).items())]
        return torch.stack(styles).sum(dim=0)


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
