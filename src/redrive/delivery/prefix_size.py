"""PrefixSize: how many records the next transaction takes, while some have to be buried: pure.

To find a message that its topic refuses costs several transactions. After the first one that is
found, the next transaction ends behind its record: it passes for sure, and no search goes back
there again. Where one follows close upon the other, each transaction tries one record more: if that
is refused too, nobody has to search for it. After that they grow again.
"""

from __future__ import annotations

from math import inf

from redrive.tuning import BURIED_AT_ONCE, TRANSACTION_GROWTH, TRANSACTION_WRITES


class PrefixSize:
    """That of one partition."""

    def __init__(self) -> None:
        self.most: float = inf
        """How many records with something to write there are at most."""
        self._in_a_row = 0
        """How many were buried since transactions were as large as they can be."""
        self._next: float = inf
        """The size of the one after the next."""

    @property
    def limited(self) -> bool:
        """Whether transactions are small."""
        return self.most < inf

    def buried(self, number: int) -> None:
        """A transaction was taken back; the last of its records to be buried has that number."""
        self._in_a_row += 1
        if self._in_a_row == 1 or number > BURIED_AT_ONCE:
            self.most, self._next = number, inf
        else:
            self.most, self._next = number + (number < BURIED_AT_ONCE), 1

    def committed(self) -> None:
        """A transaction has passed."""
        if not self.limited:
            self._in_a_row = 0
        self.most = self._next
        self._next = self.most * TRANSACTION_GROWTH
        if self._next > TRANSACTION_WRITES:
            self._next = inf
