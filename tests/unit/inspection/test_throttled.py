"""What people see of work that a dispatch rate holds back: the reason with its moment, and no word of starving."""

from __future__ import annotations

import pytest

from queueapp import Key
from queueapp.codec import digest
from queueapp.inspection.explain import explain
from queueapp.inspection.shares import Standing
from queueapp.store.configuration import KeyLimits, PoolConf, Rate, ScopeLimits
from queueapp.store.service import MINUTE_MS
from queueapp.store.store import Store
from tests.lua.harness import LEASE_MS, Shard, completed
from tests.producing import add
from tests.unit.inspection.seen import of, seen

pytestmark = pytest.mark.django_db

HOURLY = Rate(rate=60, period_ms=3_600_000)


def lease(store: Store, want: int = 5) -> int:
    return len(store.check_and_lease("w", store.client.incr("test:seq"), want=want, begin=want, lease_ms=30_000).jobs)


@pytest.mark.parametrize(
    ("lane", "words"),
    [
        ("", "the dispatch rate of its tenant acme (60 per 3600 s)"),
        ("main", "the dispatch rate of its lane main (60 per 3600 s)"),
    ],
)
def test_why_names_the_dispatch_rate_and_the_moment(store: Store, lane: str, words: str) -> None:
    store.configure(1, scopes=[ScopeLimits(tenant="acme", lane=lane, dispatch_rate=HOURLY)])
    task = add.using(tenant="acme")
    task.enqueue(0)
    waits = task.enqueue(1)
    assert explain(waits.id).reasons[0].kind != "throttled", "the other one is before it, and there is a token"
    assert lease(store) == 1
    why = explain(waits.id)
    [reason] = [one for one in why.reasons if one.kind == "throttled"]
    assert (why.state, reason.blocks) == ("pending", True)
    assert reason.text.startswith("throttled until 20")
    assert reason.text.endswith(f" UTC: {words} lets no job start before")
    assert reason.until is not None
    assert why.until == reason.until


def test_why_names_a_key_only_to_those_who_may_see_contents(store: Store) -> None:
    pattern = "customer:{a}"
    store.configure(1, keys=[KeyLimits(pattern=digest(pattern), text=pattern, dispatch_rate=HOURLY)])
    task = add.using(tenant="acme", concurrency=Key(pattern, 5))
    task.enqueue(7)
    waits = task.enqueue(7)
    assert lease(store) == 1
    assert "the dispatch rate of one of its keys (60 per 3600 s)" in explain(waits.id).sentence
    assert "the dispatch rate of its key 'customer:7'" in explain(waits.id, contents=True).sentence
    assert "key_full" not in {one.kind for one in explain(waits.id).reasons}


def crowd(shard: Shard, rate: Rate) -> None:
    shard.store.configure(1, pool=PoolConf(cost_unit="pages"))
    shard.store.configure(2, scopes=[ScopeLimits(tenant="slow", dispatch_rate=rate)])
    shard.add(*(shard.job("slow", cost=10) for _ in range(90)), *(shard.job("free", cost=10) for _ in range(200)))


def work(shard: Shard, minutes: int) -> None:
    for number in range(minutes * 6):
        shard.now_ms += 10_000
        leases = shard.store.cycle("w", shard.now_ms // 10_000, want=2, begin=2, lease_ms=LEASE_MS)
        shard.store.complete([completed(job) for job in leases.jobs])
        assert number >= 0


def test_a_throttled_tenant_is_capped_and_never_starved(shard: Shard) -> None:
    crowd(shard, Rate(rate=1, period_ms=2 * MINUTE_MS))
    work(shard, 7)
    slow = of(seen(shard), "slow")
    assert (slow.state, slow.waiting, slow.jobs) == (Standing.CAPPED, 86, 3)
    while of(seen(shard), "slow").state is Standing.CAPPED:
        shard.now_ms += 1_000
        shard.store.promote_due()
    # It has a token now, and its first job has waited for minutes: for its rate, not for its turn.
    slow = of(seen(shard), "slow")
    assert slow.state is Standing.FAIR
    assert slow.ratio is not None
    assert slow.ratio > 0.5


def test_who_may_start_by_its_rate_and_gets_no_turn_is_starved_all_the_same(shard: Shard) -> None:
    shard.store.configure(1, pool=PoolConf(policy="fifo", cost_unit="pages"))
    shard.store.configure(2, scopes=[ScopeLimits(tenant="slow", dispatch_rate=Rate(rate=60, period_ms=MINUTE_MS))])
    shard.add(*(shard.job("free", cost=10) for _ in range(200)), *(shard.job("slow", cost=10) for _ in range(90)))
    work(shard, 7)
    assert of(seen(shard), "slow").state is Standing.STARVED


def test_the_lines_of_explain_count_a_rate_like_a_ceiling(shard: Shard) -> None:
    """Under an order, jobs of a throttled tenant start not before one of another, but for as many as have tokens."""
    shard.store.configure(1, pool=PoolConf(policy="fifo"))
    shard.store.configure(2, scopes=[ScopeLimits(tenant="slow", dispatch_rate=Rate(rate=1, period_ms=60_000, burst=3))])
    shard.add(*(shard.job("slow") for _ in range(50)))
    [last] = shard.add(shard.job("free"))
    facts = shard.store.explain(last, live_ms=60_000, most=8, walked=1, looks=1_000)
    assert facts.ahead == 3
