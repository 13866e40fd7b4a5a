"""Which items share a pass, and in which shape: plain numbers, no torch.

Padding is not free: the library's convolutions compute it nearly in full. So items share a pass only if their lengths
are near each other, and a pass has one of a few shapes, so that it can be recorded once and replayed.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2

MAX_PADDING = 1.5
"""A pass is at most so many times longer than an item in it."""


@dataclass(frozen=True, slots=True)
class Group:
    """One pass.

    Attributes:
        items: indices of the items in it; its further rows, up to `batch`, are padding.
        batch, size: its shape.
        repeated: the shape is one of the few, so that recording it pays.
    """

    items: tuple[int, ...]
    batch: int
    size: int
    repeated: bool


Grouping = Callable[[Sequence[int]], list[Group]]
"""Sizes of items to the passes that they are computed in; each item is in exactly one."""


def alone(sizes: Sequence[int]) -> list[Group]:
    """Each item in a pass of its own, in exactly its shape.

    For CPUs: their arithmetic units are busy with one item already. Four equal items in a batch gained 13 to 23 %
    there; items of different lengths lost up to 27 %.
    """
    return [Group((item,), 1, size, repeated=False) for item, size in enumerate(sizes)]


@dataclass(frozen=True, slots=True)
class Buckets:
    """The shapes of one stage, for GPUs.

    Attributes:
        sizes, batches: allowed values, ascending.
        max_cells: bound of batch * size, which bounds the memory of a pass. An item that is longer goes alone.
    """

    sizes: tuple[int, ...]
    batches: tuple[int, ...]
    max_cells: int

    def __call__(self, sizes: Sequence[int]) -> list[Group]:
        """Longest first, so that no item waits for a longer one to be padded to."""
        order = sorted(range(len(sizes)), key=lambda item: -sizes[item])
        groups: list[Group] = []
        while order:
            size = self._size(sizes[order[0]])
            room = max(1, min(self.batches[-1], self.max_cells // size))
            items = [order.pop(0)]
            while order and len(items) < room and sizes[order[0]] * MAX_PADDING >= size:
                items.append(order.pop(0))
            batch = next(batch for batch in self.batches if batch >= len(items))
            if batch * size > self.max_cells:
                batch = len(items)
            repeated = size <= self.sizes[-1] and batch in self.batches
            groups.append(Group(tuple(items), batch, size, repeated))
        return groups

    def most_used(self, typical: int, cell_bytes: int, max_bytes: int, most: int) -> list[Group]:
        """Shapes to record before the first listener comes: those expected most often first.

        Expected are items alone more often than in company, and lengths around `typical`, half as likely at half or
        twice of it.

        Args:
            cell_bytes: what a recording keeps for each of its batch * size cells.
            max_bytes: what all of them may keep; a shape that does not fit leaves its place to the next.
            most: so many at most, as each takes time.
        """
        shapes = [(batch, size) for batch in self.batches for size in self.sizes if batch * size <= self.max_cells]
        shapes.sort(key=lambda shape: log2(shape[0]) + log2(shape[1] / typical) ** 2)
        chosen: list[Group] = []
        for batch, size in shapes:
            if len(chosen) < most and batch * size * cell_bytes <= max_bytes:
                max_bytes -= batch * size * cell_bytes
                chosen.append(Group((), batch, size, repeated=True))
        return chosen

    def _size(self, size: int) -> int:
        at = bisect_left(self.sizes, size)
        return self.sizes[at] if at < len(self.sizes) else size


TOKEN_SIZES = (32, 64, 96, 128, 192, 256, 384, 512)
FRAME_SIZES = (64, 80, 96, 120, 152, 192, 240, 304, 376, 472, 592, 736, 920, 1152, 1440, 1800, 2048)
"""Steps of about 1.25, which waste 11 % on average: 1.6 to 51 s."""
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
MAX_TOKENS = 16_384
"""Tokens in one pass of the text stage: half a GB of attention."""
