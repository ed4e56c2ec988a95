"""Room in one piece: which places of a pool a sequence gets, if they must lie side by side.

First fit takes the first gap that is long enough; a buddy allocator halves and joins pieces whose
lengths are powers of two (Knuth, The Art of Computer Programming 1, section 2.5). Blocks of one
size need neither (`block_manager`).
"""

from twophase.kernels.span import whole


class FirstFit:
    """Pieces of exactly the length that is asked for. ValueError for a pool below 1 place."""

    def __init__(self, n_places: int) -> None:
        self.n_places = whole("the number of places", n_places, 1)
        self.pieces: dict[int, tuple[int, int]] = {}  # sequence -> its first place, its length

    @property
    def n_free(self) -> int:
        """Places that nobody holds, wherever they are."""
        return self.n_places - sum(length for _, length in self.pieces.values())

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """What lies free between the pieces, (first place, length) each, from the left."""
        found, end = [], 0
        for start, length in sorted(self.pieces.values()):
            if start > end:
                found.append((end, start - end))
            end = start + length
        return [*found, (end, self.n_places - end)] if end < self.n_places else found

    def takes(self, n: int) -> int:
        """Places that a piece for n tokens takes. ValueError for no token, or no whole number."""
        return whole("the number of tokens", n, 1)

    def first_place(self, start: int, size: int) -> int:
        """Where a piece of this size may begin, from `start` on: anywhere."""
        return start

    def allocate(self, seq: int, n: int) -> bool:
        """Take a piece for n tokens, in the first gap that has room for it; whether there was one.
        ValueError for a sequence that has a piece, or n below 1."""
        whole("the number of tokens", n, 1)
        if seq in self.pieces:
            raise ValueError(f"sequence {seq} has a piece: free it before it is allocated again.")
        size = self.takes(n)
        for start, length in self.gaps:
            first = self.first_place(start, size)
            if first + size <= start + length:
                self.pieces[seq] = first, size
                return True
        return False

    def free(self, seq: int) -> None:
        """Give a sequence's piece back. ValueError if it has none."""
        if seq not in self.pieces:
            raise ValueError(f"sequence {seq} has no piece: allocate one first.")
        del self.pieces[seq]

    def compact(self) -> int:
        """Move all pieces to the left, so that one gap is left; how many places were moved."""
        moved = end = 0
        for seq, (start, length) in sorted(self.pieces.items(), key=lambda item: item[1]):
            if start > end:
                moved += length
                self.pieces[seq] = end, length
            end += length
        return moved


class Buddy(FirstFit):
    """Pieces whose lengths are powers of two, each at a multiple of its length: what is free can be
    found, and joined with its neighbor, by a glance at its number. ValueError for a pool that is no
    power of two itself."""

    def __init__(self, n_places: int) -> None:
        super().__init__(n_places)
        if n_places & (n_places - 1):
            raise ValueError(f"a buddy allocator's pool is a power of two; got {n_places} places.")

    def takes(self, n: int) -> int:
        """The power of two that holds n tokens. ValueError as in `FirstFit`."""
        return 1 << (super().takes(n) - 1).bit_length()

    def first_place(self, start: int, size: int) -> int:
        """The next multiple of the size."""
        return -(-start // size) * size

    def compact(self) -> int:
        """ValueError: pieces of a buddy allocator stay where they are."""
        raise ValueError("pieces of a buddy allocator lie at multiples of their lengths.")
