"""Suspects: jobs that twice took their worker along run alone, hold up nobody for long, and keep their turn."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import Completed
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.lua.test_recover import lose

AGES_MS = 1_000_000_000


def suspects(shard: Shard, tenants: Sequence[str]) -> list[str]:
    """One job of each tenant, all of which twice took a worker with them."""
    ids = shard.add(*(shard.job(tenant, max_crashes=9) for tenant in tenants))
    for worker in ("crashed1", "crashed2"):
        assert sorted(lose(shard, worker, len(ids))) == sorted(ids)
    return ids


def busy(shard: Shard, *workers: str) -> None:
    """Each of these workers holds a job that runs for ages."""
    for worker in workers:
        (job_id,) = shard.add(shard.job("own", cost=1))
        assert [job.id for job in shard.lease(1, worker)] == [job_id]
        shard.store.extend_lease([(job_id, 1)], AGES_MS)


def test_a_suspect_stays_alone_however_often_its_worker_asks(shard: Shard) -> None:
    (suspect,) = suspects(shard, ["acme"])
    shard.add(*(shard.job("other") for _ in range(4)))
    assert [job.id for job in shard.lease(1, "w3")] == [suspect]
    assert [shard.lease(5, "w3") for _ in range(3)] == [[], [], []]


def test_a_suspect_is_not_added_to_what_the_same_call_leased(shard: Shard) -> None:
    """The worker holds nothing when it asks, but an ordinary job comes first."""
    shard.store.configure(1, scopes=[ScopeLimits(tenant="alpha", paused=True)])
    alpha = shard.add(*(shard.job("alpha") for _ in range(2)))
    (suspect,) = suspects(shard, ["zeta"])
    shard.store.configure(2, scopes=[ScopeLimits(tenant="alpha")])
    assert shard.store.peek(1)[0][0] == "alpha"
    assert [job.id for job in shard.lease(5, "w3")] == alpha
    assert [job.id for job in shard.lease(5, "w4")] == [suspect]


def test_peek_sees_what_an_empty_worker_gets(shard: Shard) -> None:
    suspects(shard, ["a"])
    shard.add(shard.job("b"))
    seen = [job_id for _, _, job_id in shard.store.peek(5)]
    assert seen == [job.id for job in shard.lease(5, "w3")]


def test_a_redriven_suspect_is_none_any_more(shard: Shard) -> None:
    (job_id,) = suspects(shard, ["acme"])
    (job,) = shard.lease(1, "w3")
    shard.store.fail([failed(job)])
    shard.store.retry_from_dlq([job_id])
    shard.add(*(shard.job("other") for _ in range(5)))
    assert job_id in [job.id for job in shard.lease(2, "w3")]
    assert len(shard.lease(2, "w3")) == 2


@pytest.mark.parametrize("want", [1, 2])
@pytest.mark.parametrize("count", [2, 40])
def test_a_busy_worker_passes_many_suspects_over_in_one_call(shard: Shard, count: int, want: int) -> None:
    busy(shard, "w3")
    suspects(shard, [f"a{number:02d}" for number in range(count)])
    shard.add(*(shard.job("zz", cost=1) for _ in range(3)))
    assert [job.tenant for job in shard.lease(want, "w3")] == ["zz"] * want


def test_work_that_only_an_empty_worker_may_take_keeps_the_wake_armed(shard: Shard) -> None:
    busy(shard, "w3")
    (suspect,) = suspects(shard, ["acme"])
    found = shard.store.check_and_lease("w3", 2, want=5, begin=5, lease_ms=LEASE_MS)
    assert (list(found.jobs), found.runnable) == ([], True)
    assert shard.snapshot()["wake"] == [(b"w", 0.0)]
    assert [job.id for job in shard.lease(5, "w4")] == [suspect]


def test_a_tenant_whose_only_work_is_a_suspect_passed_over_stays_in_the_walk(shard: Shard) -> None:
    """Its other lane runs out in the very call that passes the suspect over."""
    busy(shard, "w3")
    (suspect,) = suspects(shard, ["acme"])
    (other,) = shard.add(shard.job("acme", lane="other", cost=1))
    assert [job.id for job in shard.lease(1, "w3")] == [other]
    assert b"acme" in dict(shard.snapshot()["walk"])
    assert [job.id for job in shard.lease(1, "w4")] == [suspect]


def test_a_busy_worker_goes_on_when_a_tenant_has_only_a_suspect_left(shard: Shard) -> None:
    """Its other lane runs out, and the call wants more."""
    busy(shard, "w3")
    (suspect,) = suspects(shard, ["acme"])
    shard.add(shard.job("acme", lane="other", cost=1), *(shard.job("zz", cost=1) for _ in range(2)))
    assert [job.tenant for job in shard.lease(5, "w3")] == ["acme", "zz", "zz"]
    assert [job.id for job in shard.lease(5, "w4")] == [suspect]


def test_no_pool_stands_still_behind_a_suspect_for_more_than_a_quarter_of_the_time(shard: Shard) -> None:
    """Every worker holds a job that runs for ages, so that none ever becomes empty for the suspect."""
    workers = ["w3", "w4", "w5"]
    busy(shard, *workers)
    suspects(shard, ["acme"])
    shard.add(*(shard.job(tenant, cost=1) for tenant in ("p", "q", "r") for _ in range(200)))
    moved = []
    for _ in range(100):
        got = [job for worker in workers for job in shard.lease(1, worker)]
        shard.store.complete([completed(job) for job in got])
        moved.append(bool(got))
        shard.now_ms += 1_000
    passed = [seconds for seconds, running in enumerate(moved) if not running]
    assert passed == [5, 6, *range(10, 13), *range(20, 25), *range(40, 50), *range(80, 100)]


def test_the_time_that_a_suspect_was_passed_over_begins_anew_after_its_lease(shard: Shard) -> None:
    """Or a busy worker would stop in front of it at once, for what it waited before it last ran."""
    busy(shard, "w3")
    (suspect,) = suspects(shard, ["acme"])
    shard.add(*(shard.job("zz", cost=1_000) for _ in range(3)))
    assert [job.tenant for job in shard.lease(1, "w3")] == ["zz"]
    shard.now_ms += 12_000
    assert lose(shard, "w4") == [suspect]
    assert [job.tenant for job in shard.lease(1, "w3")] == ["zz"]


@pytest.mark.parametrize("policy", ["fifo", "tiered"])
def test_a_suspect_passed_over_keeps_the_place_of_its_tenant(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    busy(shard, "w3")
    (suspect,) = suspects(shard, ["acme"])
    ids = shard.add(*(shard.job("acme", lane="other", cost=1) for _ in range(5)), shard.job("later", cost=1))
    before = dict(shard.snapshot()["lanes:acme"])[b"main"]
    shard.lease(2, "w3")
    assert shard.store.verify() == []
    assert dict(shard.snapshot()["lanes:acme"])[b"main"] == before
    assert [job.id for job in shard.lease(1, "w4")] == [suspect]
    assert {job.id for job in shard.lease(9, "w5")} < set(ids)


def test_fifo_serves_the_others_behind_a_tenant_whose_head_is_passed_over(shard: Shard) -> None:
    shard.store.configure(1, pool=PoolConf(policy="fifo"))
    busy(shard, "w3")
    suspects(shard, ["acme"])
    shard.add(shard.job("acme", lane="other"), shard.job("b"), shard.job("c"))
    assert [job.tenant for job in shard.lease(5, "w3")] == ["b", "c"]


def test_fifo_keeps_the_place_of_a_suspect_when_the_other_lane_only_expires(shard: Shard) -> None:
    """The tenant is put right once more, for its other lane, after its suspect was passed over."""
    shard.store.configure(1, pool=PoolConf(policy="fifo"))
    busy(shard, "w3")
    shard.store.configure(2, scopes=[ScopeLimits(tenant="acme", lane="other", paused=True)])
    shard.add(shard.job("acme", lane="other", expires_after_ms=1_000))
    (suspect,) = suspects(shard, ["acme"])
    shard.store.configure(3, scopes=[ScopeLimits(tenant="acme", lane="other")])
    place = dict(shard.snapshot()["lanes:acme"])[b"main"]
    assert shard.lease(5, "w3") == []
    assert shard.snapshot()["stats"][b"expired"] == b"1"
    assert dict(shard.snapshot()["walk"]) == {b"acme": place}
    assert [job.id for job in shard.lease(5, "w4")] == [suspect]


def test_a_worker_that_became_empty_takes_the_suspect_and_then_goes_on(shard: Shard) -> None:
    busy(shard, "w3")
    (suspect,) = suspects(shard, ["acme"])
    others = shard.add(*(shard.job("other") for _ in range(3)))
    (held,) = shard.snapshot()["held:w3"]
    shard.store.complete([Completed(id=held.decode(), attempts=1, run_ms=1)])
    (job,) = shard.lease(5, "w3")
    assert job.id == suspect
    shard.store.complete([completed(job)])
    assert [job.id for job in shard.lease(5, "w3")] == others
