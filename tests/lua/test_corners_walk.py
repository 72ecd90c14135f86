"""The walk where it is seldom looked at: ties, prefixes that run out, tags that V has passed, tenants that go."""

from __future__ import annotations

import pytest

from queueapp.store.configuration import PoolConf, ScopeLimits
from tests.lua.harness import Shard, completed

NAMES = ["b", "A", "a", "B", "-c", ".d"]


def policy_fields(shard: Shard) -> set[str]:
    return {field.decode() for field in shard.snapshot()["policy"]}


def test_ties_go_by_the_bytes_of_the_name(shard: Shard) -> None:
    """In the server's order and in that of a call's memory, whatever the locale of the server."""
    shard.add(*(shard.job(tenant, cost=1) for tenant in NAMES for _ in range(2)))
    assert [tenant for tenant, _, _ in shard.store.peek(12)] == sorted(NAMES) * 2
    assert [job.tenant for _ in range(12) for job in shard.lease(1)] == sorted(NAMES) * 2


def test_every_lane_has_its_turn_before_the_first_has_another(shard: Shard) -> None:
    """More lanes than a call reads ahead: those that were served must not stand before those that were not read."""
    lanes = [f"lane{number:02d}" for number in range(40)]
    shard.add(*(shard.job(lane=lane, cost=1) for lane in lanes for _ in range(2)))
    assert [lane for _, lane, _ in shard.store.peek(40)] == lanes
    assert [job.lane for job in shard.lease(40)] == lanes


def test_every_tenant_has_its_turn_although_those_read_ahead_have_nothing_to_run(shard: Shard) -> None:
    """A call reads one tenant more than it wants jobs; here all but the first have only jobs that expired."""
    shard.add(*(shard.job("a") for _ in range(3)))
    shard.add(*(shard.job(tenant, expires_after_ms=5) for tenant in "bcd"), shard.job("e"), shard.job("f"))
    shard.now_ms += 10
    assert [tenant for tenant, _, _ in shard.store.peek(3)] == ["a", "e", "f"]
    assert [job.tenant for job in shard.lease(3)] == ["a", "e", "f"]


def test_peek_gets_past_more_expired_jobs_than_it_reads_ahead(shard: Shard) -> None:
    shard.add(*(shard.job(f"t{number:02d}", expires_after_ms=5) for number in range(40)))
    (late,) = shard.add(shard.job("zz"))
    shard.now_ms += 10
    assert [job_id for _, _, job_id in shard.store.peek(5)] == [late]


def test_one_call_looks_at_a_bounded_number_of_jobs(shard: Shard) -> None:
    """A queue full of expired jobs must not hold the server; the reply says that there is more."""
    shard.add(*(shard.job(expires_after_ms=5) for _ in range(500)), shard.job())
    shard.now_ms += 10
    found = shard.store.check_and_lease("w1", 1, want=1, begin=1, lease_ms=1_000)
    assert (list(found.jobs), found.runnable) == ([], True)
    assert int(shard.snapshot()["stats"][b"expired"]) == 2 * 1 + 80


def test_continuations_go_ten_to_one_across_calls_too(shard: Shard) -> None:
    fresh = set(shard.add(*(shard.job() for _ in range(3))))
    shard.add(*(shard.job(tier="continue") for _ in range(30)))
    marks = "".join("s" if job.id in fresh else "c" for _ in range(33) for job in shard.lease(1))
    assert marks == "ccccccccccs" * 3


def test_a_lane_that_ran_out_forgets_how_many_continuations_it_had(shard: Shard) -> None:
    """A new busy period begins with ten; nothing of the old one is left in the store."""
    shard.add(*(shard.job(tier="continue") for _ in range(6)), shard.job(), shard.job("other", delay_ms=1))
    while shard.lease(1):
        pass
    assert not {field for field in policy_fields(shard) if field.startswith("b:")}
    (fresh,) = shard.add(shard.job(), *(shard.job(tier="continue") for _ in range(12)))[:1]
    assert [job.id for _ in range(11) for job in shard.lease(1)].index(fresh) == 10


def test_a_lane_that_is_emptied_by_hand_forgets_it_too(shard: Shard) -> None:
    (fresh,) = shard.add(shard.job())
    shard.add(*(shard.job(tier="continue") for _ in range(3)))
    shard.lease(3)
    assert "b:acme|main" in policy_fields(shard)
    shard.store.cancel([fresh])
    assert "b:acme|main" not in policy_fields(shard)


def test_a_tag_that_v_has_passed_gives_no_credit(shard: Shard) -> None:
    """V passes a hundred tags in one call, which drops 64 of them. The others count for nothing."""
    tenants = [f"t{number:03d}" for number in range(100)]
    shard.add(*(shard.job("a", cost=50) for _ in range(4)), *(shard.job(tenant, cost=5) for tenant in tenants))
    assert len(shard.lease(100)) + len(shard.lease(1)) == 101
    clock = float(shard.snapshot()["policy"][b"V"])
    assert clock == 50
    assert len(shard.snapshot()["tags"]) == 35
    shard.add(*(shard.job(tenant) for tenant in tenants))
    walk = dict(shard.snapshot()["walk"])
    assert {walk[tenant.encode()] for tenant in tenants} == {clock}
    shard.lease(100)
    assert len(shard.snapshot()["tags"]) < 100, "the next call in which V moves drops more"


def ahead(shard: Shard) -> None:
    """Tenant a ran out of work and is ahead of V; its lane one is ahead of its lane two. Tenant b goes on."""
    jobs = [shard.job("a", lane="one", cost=30), shard.job("a", lane="two", cost=20), shard.job("b", cost=40)]
    shard.add(*jobs, *(shard.job("b", cost=1) for _ in range(200)))
    assert [job.lane for job in shard.lease(3)] == ["one", "main", "two"]
    assert dict(shard.snapshot()["tags"]) == {b"a": 50.0}
    assert dict(shard.snapshot()["ltags:a"]) == {b"one": 30.0}


@pytest.mark.parametrize("waits", ["paused", "scheduled"])
def test_a_tenant_with_waiting_jobs_is_not_forgotten_when_v_passes_its_tag(shard: Shard, waits: str) -> None:
    """What its lanes were served still counts when it comes back."""
    ahead(shard)
    delay_ms = 5 if waits == "scheduled" else 0
    shard.add(*(shard.job("a", lane=lane, delay_ms=delay_ms) for lane in ("two", "one")))
    if waits == "paused":
        shard.store.configure(1, scopes=[ScopeLimits(tenant="a", paused=True)])
    assert dict(shard.snapshot()["tags"]) == {b"a": 50.0}
    assert {job.tenant for job in shard.lease(40)} == {"b"}
    assert "tags" not in shard.snapshot()
    if waits == "paused":
        shard.store.configure(2, scopes=[ScopeLimits(tenant="a")])
    else:
        shard.now_ms += 5
        shard.store.promote_due()
    assert [job.lane for job in shard.lease(100) if job.tenant == "a"] == ["two", "one"]


def test_a_tenant_ahead_of_v_is_not_forgotten_with_its_last_job(shard: Shard) -> None:
    """Its lanes keep their tags as long as it keeps its own."""
    ahead(shard)
    shard.add(shard.job("a", lane="two"), shard.job("a", lane="one"))
    assert [lane for tenant, lane, _ in shard.store.peek(100) if tenant == "a"] == ["two", "one"]


def test_a_refund_forgets_a_tenant_that_is_done(shard: Shard) -> None:
    shard.add(shard.job("a"), *(shard.job("b", cost=1) for _ in range(200)))
    (job,) = (job for job in shard.lease(12) if job.tenant == "a")
    shard.now_ms += 5
    shard.store.complete([completed(job, run_ms=1)])
    assert shard.store.verify() == []
    assert b"a" not in dict(shard.snapshot().get("tags", []))
    assert "V:a" not in policy_fields(shard)


def test_tags_left_by_another_policy_are_dropped_by_the_next_calls(shard: Shard) -> None:
    """More of them than one call drops."""
    tenants = [f"t{number:03d}" for number in range(100)]
    shard.add(*(shard.job(tenant, cost=5) for tenant in tenants))
    shard.add(shard.job("a", cost=1), shard.job("a", cost=1))
    leased = [job for want in (100, 2) for job in shard.lease(want)]
    shard.store.complete([completed(job) for job in leased])
    assert len(shard.snapshot()["tags"]) == 100
    shard.store.configure(1, pool=PoolConf(policy="fifo"))
    shard.add(shard.job("a"))
    assert "tags" not in shard.snapshot()
    assert not {field for field in policy_fields(shard) if field.startswith("V:t")}


def test_a_job_promoted_and_expired_by_one_cycle_leaves_no_pointer(shard: Shard) -> None:
    """Its lane got work and lost it in the same call: what the call knew of the lane's head is void."""
    shard.add(shard.job(delay_ms=100, expires_after_ms=150))
    shard.now_ms += 200
    found = shard.store.cycle("w1", 1, want=0, begin=0, lease_ms=1_000)
    assert found.runnable is False
    assert not {"walk", "lanes:acme"} & shard.snapshot().keys()
    assert b"w" not in dict(shard.snapshot()["wake"])
    assert shard.snapshot()["stats"][b"expired"] == b"1"


def test_finish_tags_of_many_tenants_lanes_go_when_v_has_passed_them(shard: Shard) -> None:
    shard.add(*(shard.job(tenant, lane="a", cost=5) for tenant in "xy"))
    shard.add(*(shard.job(tenant, lane="b", cost=1) for tenant in "xy" for _ in range(12)))
    shard.lease(2)
    assert {"ltags:x", "ltags:y"} <= shard.snapshot().keys()
    shard.lease(16)
    assert not {"ltags:x", "ltags:y"} & shard.snapshot().keys()
