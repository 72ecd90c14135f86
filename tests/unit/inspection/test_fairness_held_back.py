"""What the certificate says of tenants whose work something held back, or moved without their turn: it blames neither
them nor the policy for it. And of what comes between its round trips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queueapp.inspection.fairness import certify
from queueapp.inspection.shares import Standing
from queueapp.store import service as service_reads
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.service import MINUTE_MS
from tests.lua.harness import LEASE_MS, Shard, completed, counting_commands
from tests.lua.keyed import keyed
from tests.unit.inspection.seen import of, seen


def work(shard: Shard, minutes: float, *, every_ms: int = 10_000, slots: int = 1) -> None:
    """So many jobs at a time, one after the other."""
    for _ in range(round(minutes * MINUTE_MS / every_ms)):
        shard.now_ms += every_ms
        shard.store.complete([completed(job) for job in shard.lease(slots)])


@pytest.mark.parametrize("keys", [(), ("k",), ("k", "l")])
@pytest.mark.parametrize("policy", ["fifo", "edf"])
def test_who_gets_nothing_is_starved_whatever_keys_its_jobs_have(
    shard: Shard, keys: tuple[str, ...], policy: str
) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy, cost_unit="pages"))
    shard.add(*(shard.job("big", cost=10) for _ in range(60)))
    shard.add(*(keyed(shard, *keys, limit=1000, tenant="small", cost=10) for _ in range(60)))
    work(shard, 7)
    small = of(seen(shard), "small")
    assert (small.state, small.units, small.wait_s) == (Standing.STARVED, 0, 420)
    assert small.entitled_units > 0


def pause(shard: Shard) -> Callable[[], None]:
    shard.store.configure(2, scopes=[ScopeLimits(tenant="held", paused=True)])
    return lambda: shard.store.configure(3, scopes=[ScopeLimits(tenant="held")])


def pause_lane(shard: Shard) -> Callable[[], None]:
    shard.store.configure(2, scopes=[ScopeLimits(tenant="held", lane="main", paused=True)])
    return lambda: shard.store.configure(3, scopes=[ScopeLimits(tenant="held", lane="main")])


def fill(shard: Shard) -> Callable[[], None]:
    """Its ceiling is taken by a long job of its own."""
    shard.store.configure(2, scopes=[ScopeLimits(tenant="held", max_in_flight=1)])
    shard.add(shard.job("held", cost=1))
    (job,) = shard.lease(worker="w2")

    def end() -> None:
        shard.store.complete([completed(job)])

    return end


def fill_key(shard: Shard) -> Callable[[], None]:
    """The key of all its jobs is taken by another's long job."""
    shard.add(keyed(shard, "k", tenant="other", cost=1))
    (job,) = shard.lease(worker="w2")

    def end() -> None:
        shard.store.complete([completed(job)])

    return end


@pytest.mark.parametrize("hold", [pause, pause_lane, fill, fill_key])
@pytest.mark.parametrize("policy", ["tiered", "ring", "fifo", "wfq"])
def test_a_tenant_that_was_held_back_is_starved_only_when_it_gets_nothing_afterwards(
    shard: Shard, hold: Callable[[Shard], Callable[[], None]], policy: str
) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy, cost_unit="pages"))
    let_go = hold(shard)
    shard.add(*(shard.job("big", cost=1) for _ in range(250)))
    shard.add(*(keyed(shard, *(("k",) if hold is fill_key else ()), tenant="held", cost=1) for _ in range(100)))
    work(shard, 10)
    let_go()
    shard.now_ms += 1_000
    held = of(seen(shard), "held")
    assert held.state is Standing.FAIR
    assert held.entitled_share < 0.1
    assert held.wait_s == 601, "what is told is how long it waited"
    assert not [one for one in seen(shard).tenants if one.beyond_bound]
    if policy == "fifo":  # which goes on without it
        work(shard, 3)
        assert of(seen(shard), "held").state is Standing.STARVED


def test_a_re_entry_costs_a_worker_that_leases_no_command(shard: Shard) -> None:
    """It rides in what the call writes anyway; a call that only ends jobs writes it once for all tenants."""
    shard.store.configure(1, scopes=[ScopeLimits(tenant=f"t{number}", max_in_flight=1) for number in range(20)])
    shard.add(*(shard.job(f"t{number}", cost=1) for number in range(20) for _ in range(3)))
    jobs = shard.lease(20)
    assert len(jobs) == 20
    assert counting_commands(shard, lambda: shard.store.complete([completed(job) for job in jobs])) <= 3
    assert counting_commands(shard, lambda: shard.lease(20)) <= 3
    key = shard.keys[f"served:{shard.now_ms // MINUTE_MS}"]
    entered = f"|0|0|{shard.now_ms % MINUTE_MS}".encode()
    stored: Any = shard.client.hgetall(key)
    assert all(packed.endswith(entered) for name, packed in stored.items() if name != b"|")


def test_who_comes_with_its_first_job_is_not_written_down(shard: Shard) -> None:
    for _ in range(3):
        shard.add(shard.job(cost=1))
        assert shard.lease()
    assert shard.client.hget(shard.keys[f"served:{shard.now_ms // MINUTE_MS}"], "acme") == b"3|3|1|0"


def test_what_a_minimum_gives_is_no_turn_that_others_lag_behind(shard: Shard) -> None:
    """`big` is far ahead by one large job, and lives by its minimum since."""
    shard.store.configure(1, pool=PoolConf(cost_unit="pages"))
    shard.add(shard.job("big", cost=100_000), *(shard.job("poor", cost=1) for _ in range(250)))
    (job,) = shard.lease(1)
    assert job.tenant == "big"
    shard.store.complete([completed(job)])
    shard.add(*(shard.job("big", cost=1) for _ in range(250)))
    shard.store.configure(2, scopes=[ScopeLimits(tenant="big", min_share=1)])
    work(shard, 8, every_ms=5_000, slots=2)
    found = seen(shard)
    assert of(found, "big").jobs > 30
    assert (of(found, "poor").lag, of(found, "poor").beyond_bound) == (0, False)


def test_the_largest_job_of_a_minimum_widens_no_bound(shard: Shard) -> None:
    shard.store.configure(1, pool=PoolConf(cost_unit="pages"), scopes=[ScopeLimits(tenant="big", min_share=1)])
    shard.add(*(shard.job("poor", cost=1) for _ in range(9)))
    shard.add(shard.job("big", cost=500), *(shard.job("big", cost=1) for _ in range(9)))
    shard.lease(6)
    found = seen(shard)
    assert of(found, "big").units > 500
    assert of(found, "poor").lag_bound == 2


def lost(shard: Shard) -> None:
    shard.now_ms += LEASE_MS
    shard.store.partition_recover(10)


def resumed(shard: Shard) -> None:
    shard.store.configure(3, scopes=[ScopeLimits(tenant="back")])


@pytest.mark.parametrize("come_back", [lost, resumed])
def test_under_wfq_a_job_that_kept_its_tag_goes_first_and_is_no_lag(
    shard: Shard, come_back: Callable[[Shard], None]
) -> None:
    shard.store.configure(1, pool=PoolConf(policy="wfq", cost_unit="pages"))
    shard.add(*(shard.job("back", cost=1) for _ in range(3)))
    if come_back is lost:
        shard.lease(3, worker="dead")
    shard.store.configure(2, scopes=[ScopeLimits(tenant="back", paused=come_back is resumed)])
    shard.add(*(shard.job("busy", cost=1) for _ in range(200)))
    work(shard, 0.4, every_ms=500)
    come_back(shard)
    for _ in range(3):
        back = of(seen(shard), "back")
        assert (back.lag, back.beyond_bound) == (0, False)
        shard.now_ms += 1_000
        assert [job.tenant for job in shard.lease(1)] == ["back"]


def test_under_wfq_a_tenant_that_is_passed_over_lags(shard: Shard) -> None:
    """What the alert is for: the clock moves although a lesser tag is free to run."""
    shard.store.configure(1, pool=PoolConf(policy="wfq", cost_unit="pages"))
    shard.add(*(shard.job(tenant, cost=5) for tenant in ("acme", "globex") for _ in range(9)))
    shard.now_ms += 1_000
    shard.lease(4)
    walk, V = shard.keys["walk"], 60.0
    shard.client.hset(shard.keys["policy"], "V", V)
    acme = of(seen(shard), "acme")
    places: Any = shard.client.zrange(walk, 0, -1, withscores=True)
    pointer = min(score for member, score in places if b"acme" in member)
    assert (acme.lag, acme.beyond_bound) == (V - pointer, True)


@pytest.mark.parametrize("policy", ["tiered", "wfq"])
def test_a_suspect_that_others_pass_over_is_no_fault_of_the_policy(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy, cost_unit="pages"))
    shard.add(shard.job("bad", cost=1, max_crashes=9))
    for _ in range(2):
        shard.lease(1, "crashing")
        shard.now_ms += LEASE_MS + 1
        shard.store.partition_recover()
    shard.store.configure(2, scopes=[ScopeLimits(tenant="bad", paused=True)])
    shard.add(*(shard.job("good", cost=5) for _ in range(20)))
    busy = shard.lease(1)
    shard.store.configure(3, scopes=[ScopeLimits(tenant="bad")])
    for _ in range(6):  # never without a job, so that it passes the suspect over
        shard.now_ms += 100
        busy += shard.lease(1)
        if len(busy) > 2:
            shard.store.complete([completed(busy.pop(0))])
    assert {job.tenant for job in busy} == {"good"}
    bad = of(seen(shard), "bad")
    assert (bad.lag, bad.beyond_bound) == (None, False)


TRIPS = 9


@pytest.mark.parametrize("policy", ["tiered", "wfq", "ring"])
@pytest.mark.parametrize("trip", range(TRIPS))
def test_a_lease_between_two_round_trips_is_never_beyond_a_bound(
    shard: Shard, monkeypatch: pytest.MonkeyPatch, policy: str, trip: int
) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy, cost_unit="pages"))
    shard.add(*(shard.job("small", cost=1) for _ in range(40)), *(shard.job("rich", cost=900) for _ in range(9)))
    shard.lease(1)
    shard.now_ms += MINUTE_MS
    shard.lease(1)
    trips, send = iter(range(TRIPS)), service_reads._Reader.send

    def interrupted(reader: Any, queue: Callable[[Any], object]) -> list[Any]:
        replies = send(reader, queue)
        if next(trips, None) == trip:
            assert shard.lease(3)
        return replies

    monkeypatch.setattr(service_reads._Reader, "send", interrupted)
    service = service_reads.read_service(shard.client, shard.keys, window_s=300, now_ms=shard.now_ms)
    assert [name for name, one in service.tenants.items() if one.in_line] == ["small", "rich"]
    assert not [one for one in certify("default", service).tenants if one.beyond_bound]


def test_a_minute_that_begins_while_it_is_read_is_read_too(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    shard.add(*(shard.job(tenant, cost=cost) for tenant, cost in (("small", 1), ("rich", 900)) for _ in range(9)))
    shard.lease(2)
    read_at_ms, send = shard.now_ms, service_reads._Reader.send

    def later(reader: Any, queue: Callable[[Any], object]) -> list[Any]:
        if shard.now_ms == read_at_ms:
            shard.now_ms += MINUTE_MS
            shard.lease(3)
        return send(reader, queue)

    monkeypatch.setattr(service_reads._Reader, "send", later)
    service = service_reads.read_service(shard.client, shard.keys, window_s=60, now_ms=read_at_ms)
    assert len(service.minutes) == 3
    assert sum(minute.jobs for minute in service.minutes) == sum(one.had.jobs for one in service.tenants.values()) == 5
