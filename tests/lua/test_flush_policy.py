"""What a policy holds in memory: kept by its leader, replaced, refused when older or of a term that is over."""

from __future__ import annotations

import pytest

from queueapp.errors import Fenced
from tests.lua.harness import Shard
from tests.lua.mirroring import lead


def test_a_flush_replaces_what_was_kept(shard: Shard) -> None:
    term = lead(shard)
    assert shard.store.read_policy() == (0, b"")
    assert shard.store.flush_policy(term, 1, b"one", order=shard.order)
    assert shard.store.flush_policy(term, 5, b"five", order=shard.order)
    assert shard.store.read_policy() == (5, b"five")
    assert [key for key in shard.snapshot() if key.startswith("flushed:")] == ["flushed:5"]


@pytest.mark.parametrize("number", [1, 2])
def test_an_older_flush_changes_nothing(shard: Shard, number: int) -> None:
    term = lead(shard)
    shard.store.flush_policy(term, 2, b"two", order=shard.order)
    before = shard.snapshot()
    assert not shard.store.flush_policy(term, number, b"other", order=shard.order)
    assert shard.snapshot() == before


def test_a_repeat_of_a_flush_is_kept(shard: Shard) -> None:
    term = lead(shard)
    assert shard.store.flush_policy(term, 2, b"two", order=shard.order)
    assert shard.store.flush_policy(term, 2, b"two", order=shard.order)


def test_a_term_that_is_over_keeps_nothing(shard: Shard) -> None:
    old = lead(shard)
    shard.term()
    before = shard.snapshot()
    with pytest.raises(Fenced):
        shard.store.flush_policy(old, 9, b"stale", order=shard.order)
    assert shard.snapshot() == before


def test_another_policy_drops_what_was_kept_and_numbers_go_on(shard: Shard) -> None:
    term = lead(shard)
    shard.store.flush_policy(term, 3, b"three", order=shard.order)
    shard.schedule(policy="lottery")
    assert shard.store.read_policy() == (3, b"")
    term = shard.term()
    assert not shard.store.flush_policy(term, 3, b"new", order=shard.order)
    assert shard.store.flush_policy(term, 4, b"new", order=shard.order)
