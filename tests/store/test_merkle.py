from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymerkle import InmemoryTree  # type: ignore[import-untyped]  # it ships no types

from limen.store.merkle import (
    EMPTY_ROOT,
    Frontier,
    MerkleError,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root_of,
    verify_inclusion,
)

# The eight entries that Certificate Transparency implementations test with, and the root at each
# size from 1 on.
ENTRIES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    bytes.fromhex(text)
    for text in (
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    )
]

sizes = st.integers(min_value=1, max_value=300)


def some_leaves(size: int) -> list[bytes]:
    return [leaf_hash(str(index).encode()) for index in range(size)]


# The three definitions of RFC 6962 §2.1, word for word and without regard to speed.


def split(size: int) -> int:
    power = 1
    while power * 2 < size:
        power *= 2
    return power


def naive_root(leaves: Sequence[bytes]) -> bytes:
    if not leaves:
        return EMPTY_ROOT
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return node_hash(naive_root(leaves[:k]), naive_root(leaves[k:]))


def naive_path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if index < k:
        return [*naive_path(index, leaves[:k]), naive_root(leaves[k:])]
    return [*naive_path(index - k, leaves[k:]), naive_root(leaves[:k])]


def test_the_published_vectors_hold_at_every_size() -> None:
    leaves = [leaf_hash(entry) for entry in ENTRIES]
    frontier = Frontier()
    for size, root in enumerate(ROOTS, start=1):
        frontier.append(leaves[size - 1])
        assert (frontier.size, frontier.root()) == (size, root)
        assert root_of(leaves[:size]) == root


def test_a_tree_without_leaves_has_the_hash_of_nothing_as_its_root() -> None:
    expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert root_of([]).hex() == Frontier().root().hex() == expected
    assert Frontier().to_bytes() == b""


@given(st.lists(st.binary(max_size=40), max_size=70))
def test_roots_agree_with_another_implementation(entries: list[bytes]) -> None:
    oracle = InmemoryTree(algorithm="sha256")
    frontier = Frontier()
    for entry in entries:
        oracle.append_entry(entry)
        frontier.append(leaf_hash(entry))
    assert frontier.root() == oracle.get_state()
    assert root_of([leaf_hash(entry) for entry in entries]) == oracle.get_state()


@pytest.mark.parametrize("size", range(1, 36))
def test_every_inclusion_proof_is_the_one_of_the_definition_and_holds(size: int) -> None:
    leaves = some_leaves(size)
    root = naive_root(leaves)
    for index, leaf in enumerate(leaves):
        hashes = inclusion_proof(leaves, index)
        assert hashes == naive_path(index, leaves)
        verify_inclusion(leaf, index, size, hashes, expected_root=root)


@given(sizes, st.data())
def test_proofs_hold_at_larger_sizes_too(size: int, draw: st.DataObject) -> None:
    leaves = some_leaves(size)
    root = root_of(leaves)
    index = draw.draw(st.integers(0, size - 1))
    hashes = inclusion_proof(leaves, index)
    verify_inclusion(leaves[index], index, size, hashes, expected_root=root)


@given(sizes, st.data())
def test_an_inclusion_proof_holds_for_no_other_leaf_index_or_hash(
    size: int, draw: st.DataObject
) -> None:
    leaves = some_leaves(size)
    root = root_of(leaves)
    index = draw.draw(st.integers(0, size - 1))
    other = draw.draw(st.integers(0, size - 1).filter(lambda found: found != index or size == 1))
    hashes = inclusion_proof(leaves, index)
    wrong: list[tuple[bytes, int, list[bytes]]] = [
        (leaf_hash(b"another"), index, hashes),
        (leaves[index], size, hashes),
        (leaves[index], -1, hashes),
        (leaves[index], index, [*hashes, root]),
    ]
    if size > 1:
        at = draw.draw(st.integers(0, len(hashes) - 1))
        wrong += [
            (leaves[index], other, hashes),
            (leaves[index], index, hashes[:-1]),
            (leaves[index], index, [*hashes[:at], root, *hashes[at + 1 :]]),
            (leaves[index], index, [*hashes[:at], hashes[at][:-1], *hashes[at + 1 :]]),
        ]
    for leaf, claimed_index, claimed_hashes in wrong:
        with pytest.raises(MerkleError):
            verify_inclusion(leaf, claimed_index, size, claimed_hashes, expected_root=root)


def test_there_is_no_proof_for_a_leaf_that_is_not_there() -> None:
    for index in (-1, 3):
        with pytest.raises(MerkleError, match=f"no leaf at index `{index}`: the tree has 3 leaves"):
            inclusion_proof(some_leaves(3), index)


@given(st.integers(0, 300))
def test_a_frontier_read_back_grows_as_the_one_that_was_written(size: int) -> None:
    frontier = Frontier()
    for leaf in some_leaves(size):
        frontier.append(leaf)
    again = Frontier.from_bytes(frontier.size, frontier.to_bytes())
    for grown in (frontier, again):
        grown.append(leaf_hash(b"next"))
    assert (again.size, again.root()) == (size + 1, frontier.root())
    assert again.to_bytes() == frontier.to_bytes()


def test_a_copy_of_a_frontier_grows_on_its_own() -> None:
    frontier = Frontier()
    frontier.append(leaf_hash(b""))
    twin = frontier.copy()
    twin.append(leaf_hash(b"\x00"))
    assert (frontier.size, frontier.root()) == (1, ROOTS[0])
    assert (twin.size, twin.root()) == (2, ROOTS[1])


@pytest.mark.parametrize(("size", "length"), [(1, 0), (1, 31), (0, 32), (3, 32), (4, 64)])
def test_bytes_that_are_no_frontier_of_that_size_are_refused(size: int, length: int) -> None:
    with pytest.raises(MerkleError, match=f"frontier of size `{size}` has {length} bytes"):
        Frontier.from_bytes(size, bytes(length))


@pytest.mark.parametrize("size", [-1, 2**63])
def test_a_frontier_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(MerkleError, match=f"frontier size is out of range: `{size}`"):
        Frontier.from_bytes(size, b"")


def test_an_entry_given_for_its_leaf_hash_is_refused_and_changes_nothing() -> None:
    frontier = Frontier()
    with pytest.raises(MerkleError, match="leaf hash has 5 bytes; expected 32"):
        frontier.append(b"entry")
    assert (frontier.size, frontier.root()) == (0, EMPTY_ROOT)


def test_a_proof_that_stops_early_at_a_root_of_its_own_does_not_hold() -> None:
    first, second, *_ = some_leaves(4)
    partial = node_hash(first, second)
    with pytest.raises(MerkleError, match="too few hashes"):
        verify_inclusion(first, 0, 4, [second], expected_root=partial)


def test_a_hash_of_another_length_does_not_hold_even_if_it_leads_to_the_root() -> None:
    [leaf] = some_leaves(1)
    with pytest.raises(MerkleError, match="hash of a proof has 33 bytes; expected 32"):
        verify_inclusion(leaf, 0, 2, [bytes(33)], expected_root=node_hash(leaf, bytes(33)))
