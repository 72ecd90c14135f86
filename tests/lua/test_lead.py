"""lead: one holder at a time, a new term at each grant, a fence that the old term cannot pass."""

from __future__ import annotations

import pytest

from queueapp.errors import Fenced, LeaseHeld
from tests.lua.harness import Shard

TTL_MS = 5_000


def test_a_second_candidate_is_refused_until_the_lease_ends(shard: Shard) -> None:
    first = shard.store.lead_acquire("host-a", "nonce-a", TTL_MS)
    with pytest.raises(LeaseHeld, match="5000"):
        shard.store.lead_acquire("host-b", "nonce-b", TTL_MS)
    shard.now_ms += TTL_MS
    second = shard.store.lead_acquire("host-b", "nonce-b", TTL_MS)
    assert second.epoch > first.epoch
    with pytest.raises(Fenced):
        shard.store.lead_renew("nonce-a", TTL_MS)


def test_acquiring_with_the_stored_nonce_renews_the_same_term(shard: Shard) -> None:
    first = shard.store.lead_acquire("host-a", "nonce-a", TTL_MS)
    shard.now_ms += 1_000
    assert shard.store.lead_acquire("host-a", "nonce-a", TTL_MS).epoch == first.epoch
    assert shard.snapshot()["leader"][b"until"] == str(shard.now_ms + TTL_MS).encode()


def test_an_expired_lease_that_nobody_took_may_be_renewed(shard: Shard) -> None:
    first = shard.store.lead_acquire("host-a", "nonce-a", TTL_MS)
    shard.now_ms += TTL_MS * 10
    assert shard.store.lead_renew("nonce-a", TTL_MS).epoch == first.epoch


def test_a_release_frees_at_once_wakes_a_standby_and_keeps_the_fence(shard: Shard) -> None:
    first = shard.store.lead_acquire("host-a", "nonce-a", TTL_MS)
    assert shard.store.lead_release("nonce-a") is True
    assert shard.store.lead_release("nonce-a") is False
    assert shard.snapshot()["wake:standby"] == [(b"r", 0.0)]
    assert shard.snapshot()["fence"][b"nonce"] == b"nonce-a"
    assert shard.store.lead_acquire("host-b", "nonce-b", TTL_MS).epoch > first.epoch


def test_epochs_grow_although_the_clock_steps_back(shard: Shard) -> None:
    first = shard.store.lead_acquire("host-a", "nonce-a", TTL_MS)
    shard.store.lead_release("nonce-a")
    shard.now_ms -= 3_600_000
    assert shard.store.lead_acquire("host-b", "nonce-b", TTL_MS).epoch > first.epoch


def test_a_lease_that_ends_in_a_far_future_is_not_live(shard: Shard) -> None:
    shard.store.lead_acquire("host-a", "nonce-a", TTL_MS)
    shard.now_ms -= 3_600_000
    assert shard.store.lead_acquire("host-b", "nonce-b", TTL_MS).nonce == "nonce-b"
