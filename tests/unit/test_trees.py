"""How a tree is cut into calls, and that it comes back from its packed form as it was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.errors import InvalidOption
from queueapp.store import trees
from queueapp.store.family_records import Away, Node
from queueapp.store.records import KeyUse, NewJob
from queueapp.store.trees import pack, pages, unpack


def node(name: int, parent: int | None, *, waits: bool = False, payload: bytes = b"{}") -> Node:
    job = NewJob(id=f"{name:022d}", task="t", tenant="a", payload=payload, fingerprint="f")
    return Node(job=job, parent="" if parent is None else f"{parent:022d}", waits=waits, position=name)


@st.composite
def random_trees(draw: st.DrawFn) -> list[Node]:
    """Parents before their children, children of one parent anywhere behind it."""
    above = [None, *(draw(st.integers(0, at - 1)) for at in range(1, draw(st.integers(1, 30))))]
    return [node(at, parent, waits=at in above) for at, parent in enumerate(above)]


@given(tree=random_trees(), most=st.integers(1, 9))
@settings(deadline=None)
def test_pages_hold_each_parent_until_the_page_of_its_last_child(tree: list[Node], most: int) -> None:
    cut = pages(tree, most=most)
    assert [each for page in cut for each in page.nodes] == tree
    assert all(len(page.nodes) <= most for page in cut)
    held: set[str] = set()
    missing = {each.job.id: sum(one.parent == each.job.id for one in tree) for each in tree}
    for page in cut:
        assert all(not each.parent or each.parent in missing for each in page.nodes)
        for each in page.nodes:
            if each.parent:
                missing[each.parent] -= 1
        held |= page.held
        assert held.issuperset(page.filled)
        held -= set(page.filled)
        there = {each.job.id for page in cut[: cut.index(page) + 1] for each in page.nodes}
        assert held == {parent for parent in there if missing[parent] > 0}
    assert held == set()


def test_a_parent_that_is_there_already_is_held_while_more_come() -> None:
    children = [node(at, 99) for at in range(5)]
    first, second, last = pages(children, outer=f"{99:022d}", most=2)
    assert [page.filled for page in (first, second, last)] == [(), (), (f"{99:022d}",)]


def test_nothing_is_one_page() -> None:
    [page] = pages([], outer="x")
    assert (list(page.nodes), page.filled) == ([], ())


def test_a_page_is_bounded_by_its_bytes() -> None:
    tree = [node(0, None, waits=True), *(node(at, 0, payload=b"x" * 400_000) for at in range(1, 7))]
    assert [len(page.nodes) for page in pages(tree)] == [3, 2, 2]


def test_a_tree_comes_back_as_it_was() -> None:
    key = KeyUse(digest="d" * 22, text="k", limit=1, pattern="p" * 22)
    job = NewJob(id="1" * 22, task="t", tenant="a", payload=b"\x00\xff", fingerprint="f", keys=(key,), cost=2.5)
    nodes = [Node(job=job, parent="abcdef.0." + "2" * 22, on_failure="ignore", position=3, waits=True)]
    away = [Away(id="x", parent="1" * 22, on_failure="continue", position=0, tenant="b", tree=b"\xfe")]
    assert unpack(pack(nodes, away)) == (nodes, away)


@pytest.mark.parametrize("packed", [b"{}", b"[]", b"no", b'{"version":2}', b'{"version":1,"nodes":[{}],"away":[]}'])
def test_what_nobody_packed_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack(packed)


def test_what_is_too_large_for_one_piece_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MAX_PACKED_BYTES", 100)
    with pytest.raises(InvalidOption, match="in one piece"):
        pack([node(0, None)], [])
