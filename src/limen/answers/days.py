"""Sets of calendar days as bit fields: what 27 years of days cost is what 1,300 bytes cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Days:
    """A set of days. Bit n of `bits` is the day with the ordinal `start` + n."""

    start: int
    bits: int

    @classmethod
    def of(cls, days: Iterable[date]) -> Days:
        """Return the set of some days, in any order."""
        ordinals = [day.toordinal() for day in days]
        if not ordinals:
            return NONE
        start = min(ordinals)
        marks = bytearray(b"0") * (max(ordinals) - start + 1)
        for ordinal in ordinals:
            marks[-1 - (ordinal - start)] = 49  # "1"
        return cls(start, int(marks, 2))

    @classmethod
    def between(cls, first: int, last: int) -> Days:
        """Return all days of two ordinals, both included; none when `last` is before `first`."""
        return cls(first, (1 << (last - first + 1)) - 1) if last >= first else NONE

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __and__(self, other: Days) -> Days:
        return Days(self.start, self.bits & other.from_(self.start))

    def __sub__(self, other: Days) -> Days:
        return Days(self.start, self.bits & ~other.from_(self.start))

    def __or__(self, other: Days) -> Days:
        start = min(self.start, other.start)
        return Days(start, self.from_(start) | other.from_(start))

    def __iter__(self) -> Iterator[date]:
        for first, length in self.runs():
            for ordinal in range(first, first + length):
                yield date.fromordinal(ordinal)

    def has(self, day: date) -> bool:
        """Tell whether a day is in the set."""
        place = day.toordinal() - self.start
        return place >= 0 and bool(self.bits >> place & 1)

    def from_(self, start: int) -> int:
        """Return the bits as they are when bit 0 is the day `start`; earlier days fall away."""
        shift = self.start - start
        return self.bits << shift if shift >= 0 else self.bits >> -shift

    def first(self) -> date | None:
        """Return the earliest day, or None when there is none."""
        if not self.bits:
            return None
        return date.fromordinal(self.start + (self.bits & -self.bits).bit_length() - 1)

    def last(self) -> date | None:
        """Return the latest day, or None when there is none."""
        return date.fromordinal(self.start + self.bits.bit_length() - 1) if self.bits else None

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the ordinal and the length of each run of days, in order."""
        bits, at = self.bits, self.start
        while bits:
            skipped = (bits & -bits).bit_length() - 1
            bits >>= skipped
            length = (~bits & (bits + 1)).bit_length() - 1
            bits >>= length
            yield at + skipped, length
            at += skipped + length


NONE = Days(1, 0)
"""No day."""
