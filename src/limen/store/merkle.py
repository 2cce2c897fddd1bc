"""The Merkle tree of RFC 6962: its hashes, its compact range, and its proofs.

A leaf is a 32-byte leaf hash everywhere but in the argument of `leaf_hash`, and a proof is a list
of 32-byte node hashes in the order of RFC 9162 §2.1.3 and §2.1.4. Nothing here stores anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from limen.errors import LimenError

HASH_SIZE = 32
"""Bytes. SHA-256, the only hash of RFC 6962."""

EMPTY_ROOT = sha256(b"").digest()
"""The root of a tree without leaves."""

MAX_SIZE = 2**63 - 1
"""Leaves. The largest integer that SQLite can hold."""


class MerkleError(LimenError):
    """Say why a proof does not hold, or why a tree cannot be built as asked."""


# RFC 6962 §2.1: leaves and inner nodes begin with a byte of their own. A copy of a hash that has
# read it is a fifth cheaper than a new one.
_LEAF = sha256(b"\x00")
_NODE = sha256(b"\x01")


def leaf_hash(data: bytes) -> bytes:
    """Return the 32-byte leaf hash of one entry, whatever its bytes."""
    hashing = _LEAF.copy()
    hashing.update(data)
    return hashing.digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node over its two 32-byte children."""
    hashing = _NODE.copy()
    hashing.update(left + right)
    return hashing.digest()


class Frontier:
    """Grow a tree leaf by leaf and keep only what its root needs.

    Holds the roots of the full subtrees, the largest first: one hash for each bit set in `size`,
    so at most 63. Mutable and for one owner; give others a `copy`.
    """

    __slots__ = ("_nodes", "_size")

    def __init__(self) -> None:
        self._size = 0
        self._nodes: list[bytes] = []

    @classmethod
    def from_bytes(cls, size: int, raw: bytes) -> Frontier:
        """Return the frontier that `to_bytes` wrote at `size`.

        Raises:
            MerkleError: `raw` cannot be the frontier of a tree of that size.
        """
        if not 0 <= size <= MAX_SIZE:
            raise MerkleError(f"frontier size is out of range: `{size}`")
        expected_length = size.bit_count() * HASH_SIZE
        if len(raw) != expected_length:
            raise MerkleError(
                f"frontier of size `{size}` has {len(raw)} bytes; expected {expected_length}"
            )
        frontier = cls()
        frontier._size = size
        frontier._nodes = [
            bytes(raw[start : start + HASH_SIZE]) for start in range(0, len(raw), HASH_SIZE)
        ]
        return frontier

    @property
    def size(self) -> int:
        """The number of leaves so far."""
        return self._size

    def append(self, leaf: bytes) -> None:
        """Add one leaf hash at index `size`."""
        if len(leaf) != HASH_SIZE:
            raise MerkleError(f"leaf hash has {len(leaf)} bytes; expected {HASH_SIZE}")
        size = self._size
        nodes = self._nodes
        node = leaf
        self._size = size + 1
        # Each bit set at the low end is a full subtree as large as the one in hand: join them.
        while size & 1:
            node = node_hash(nodes.pop(), node)
            size >>= 1
        nodes.append(node)

    def root(self) -> bytes:
        """Return the root of the tree as it is now."""
        if not self._nodes:
            return EMPTY_ROOT
        node = self._nodes[-1]
        for left in self._nodes[-2::-1]:
            node = node_hash(left, node)
        return node

    def to_bytes(self) -> bytes:
        """Return the hashes in one piece, the largest subtree first. `size` is kept apart."""
        return b"".join(self._nodes)

    def copy(self) -> Frontier:
        """Return a frontier that grows on its own."""
        twin = Frontier()
        twin._size = self._size
        twin._nodes = list(self._nodes)
        return twin


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes, in about 1 µs a leaf."""
    if not leaves:
        return EMPTY_ROOT
    level = leaves
    while len(level) > 1:
        level = _level_above(level)
    return level[0]


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the hashes that lead from the leaf at `index` to the root, lowest first.

    Raises:
        MerkleError: the tree has no leaf at `index`.
    """
    if not 0 <= index < len(leaves):
        raise MerkleError(f"no leaf at index `{index}`: the tree has {len(leaves)} leaves")
    hashes: list[bytes] = []
    level = leaves
    while len(level) > 1:
        sibling = index ^ 1
        # The last node of an odd level has no sibling and goes up as it is.
        if sibling < len(level):
            hashes.append(level[sibling])
        level = _level_above(level)
        index >>= 1
    return hashes


def verify_inclusion(
    leaf: bytes, index: int, size: int, hashes: Sequence[bytes], *, expected_root: bytes
) -> None:
    """Return if the leaf is at `index` of the tree of that size and root; else raise.

    Raises:
        MerkleError: the proof does not lead from the leaf to `expected_root`.

    Source: RFC 9162 §2.1.3.2.
    """
    if not 0 <= index < size:
        raise MerkleError(f"inclusion proof is for index `{index}` of a tree of size `{size}`")
    _refuse_other_lengths([leaf, *hashes])
    at, last = index, size - 1
    node = leaf
    for sibling in hashes:
        if last == 0:
            raise MerkleError("inclusion proof does not hold: it has too many hashes")
        if at & 1 or at == last:
            node = node_hash(sibling, node)
            at, last = _past_lone_nodes(at, last)
        else:
            node = node_hash(node, sibling)
        at >>= 1
        last >>= 1
    if last != 0:
        raise MerkleError("inclusion proof does not hold: it has too few hashes")
    if node != expected_root:
        raise MerkleError("inclusion proof does not hold: it leads to another root")


def _past_lone_nodes(at: int, last: int) -> tuple[int, int]:
    """Go up the levels on which the node has no sibling."""
    while at != 0 and not at & 1:
        at >>= 1
        last >>= 1
    return at, last


def _level_above(level: Sequence[bytes]) -> list[bytes]:
    pairs = iter(level)
    above = [
        sha256(b"\x01" + left + right).digest()
        for left, right in zip(pairs, pairs, strict=False)  # an odd last one is added below
    ]
    if len(level) % 2:
        above.append(level[-1])
    return above


def _refuse_other_lengths(hashes: Sequence[bytes]) -> None:
    # Other lengths would let one concatenation be read as two different pairs.
    for found in hashes:
        if len(found) != HASH_SIZE:
            raise MerkleError(f"hash of a proof has {len(found)} bytes; expected {HASH_SIZE}")
