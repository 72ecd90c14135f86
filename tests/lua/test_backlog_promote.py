"""The backlog: jobs above their rate, in two tiers, drawn by weight among what is due, tenants in turn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from queueapp.states import State
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from tests.lua.harness import Shard
from tests.model.front import Backlog, drawn

LATER = Rate(rate=1, period_ms=1)
"""Whatever comes after the first in one millisecond is parked, a millisecond apart."""


def park(shard: Shard, tenant: str, count: int, **options: Any) -> list[str]:
    """As many parked jobs; the first of a tenant takes the burst and is not among them."""
    shard.store.configure(1, scopes=[ScopeLimits(tenant=tenant, rate=LATER)])
    if shard.client.exists(shard.keys[f"gcra:t:{tenant}"]) == 0:
        shard.store.cancel(shard.add(shard.job(tenant)))
    answers = shard.store.enqueue([shard.job(tenant, parks=True, **options) for _ in range(count)])
    assert {answer.outcome for answer in answers} <= {"parked"}
    return [answer.id for answer in answers]


def promoted(shard: Shard) -> list[str]:
    """Ids in the order in which they came to the line."""
    found = shard.store.peek(100)
    return [job_id for _, _, job_id in found]


def test_what_is_due_goes_to_the_line_and_the_rest_stays(shard: Shard) -> None:
    ids = park(shard, "acme", 10)
    shard.now_ms += 4
    moved = shard.store.backlog_promote(1)
    assert (moved.pending, moved.more, moved.next_due_ms) == (4, False, 1)
    assert promoted(shard) == ids[:4]
    assert [record and record.state for record in shard.reads.jobs(ids)] == [State.PENDING] * 4 + [State.BACKLOG] * 6
    shard.store.backlog_promote(1)
    assert promoted(shard) == ids[:4]


def test_at_most_so_many_and_never_more_than_64_in_a_call(shard: Shard) -> None:
    park(shard, "acme", 100)
    shard.now_ms += 1_000
    assert (shard.store.backlog_promote(1, 10).pending, shard.store.backlog_promote(1, 500).pending) == (10, 64)
    last = shard.store.backlog_promote(1)
    assert (last.pending, last.more, last.next_due_ms) == (26, False, -1)


def test_tenants_take_turns_whoever_came_first_or_has_most(shard: Shard) -> None:
    park(shard, "big", 200)
    for tenant in "abc":
        park(shard, tenant, 5)
    shard.now_ms += 1_000
    shard.store.backlog_promote(3, 20)
    assert Counter(tenant for tenant, _, _ in shard.store.peek(100)) == dict.fromkeys(["big", *"abc"], 5)


def test_of_very_many_tenants_those_of_one_draw_lie_anywhere(shard: Shard) -> None:
    for number in range(150):
        park(shard, f"t{number:03}", 1)
    shard.now_ms += 1_000
    for seed in (5, 6, 7):
        shard.store.backlog_promote(seed * 999_983, 20)
    tenants = {tenant for tenant, _, _ in shard.store.peek(100)}
    assert len(tenants) == 60
    assert tenants - {f"t{number:03}" for number in range(64)}


def test_a_worker_s_call_takes_a_share(shard: Shard) -> None:
    park(shard, "acme", 20)
    shard.now_ms += 1_000
    cycle = shard.store.cycle("w1", 1, want=5, begin=5, lease_ms=30_000)
    assert len(cycle.jobs) == 5
    assert shard.reads.sizes(["backlog"]) == [12]


def test_a_parked_worker_is_told_when_the_first_is_due(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=5_000))])
    shard.add(shard.job())
    shard.lease()
    shard.client.delete(shard.keys["wake"])
    shard.store.enqueue([shard.job(parks=True)])
    assert shard.client.zrange(shard.keys["wake"], 0, -1) == [b"t"]
    assert shard.store.check_and_lease("w2", 1, want=1, begin=1, lease_ms=30_000).next_due_ms == 5_000


def test_what_is_parked_can_expire_be_cancelled_and_be_set_aside(shard: Shard) -> None:
    one, two, three = park(shard, "acme", 3, expires_after_ms=500)
    assert shard.store.cancel([one]) == ["cancelled"]
    assert shard.store.move_to_dlq([two], "why") == ["moved"]
    shard.now_ms += 500
    assert shard.store.promote_due().expired == 1
    assert [record and record.state for record in shard.reads.jobs([one, two, three])] == [
        State.ENDED,
        State.DEAD,
        State.ENDED,
    ]
    assert shard.store.retry_from_dlq([two]) == ["retried"]


@pytest.mark.dirty_store
def test_a_row_that_cannot_be_read_stops_nobody(shard: Shard) -> None:
    ids = park(shard, "acme", 3)
    shard.client.set(shard.keys.job(ids[0]), "nonsense")
    shard.now_ms += 1_000
    assert shard.store.backlog_promote(1).pending == 2
    assert shard.client.smembers(shard.keys["quarantine"]) == {ids[0].encode()}
    assert shard.reads.overview().waiting == 2


def test_the_weight_is_the_pool_s(shard: Shard) -> None:
    shard.store.configure(2, pool=PoolConf(continue_weight=3))
    park_of(shard, {"acme": 60}, {"acme": 60})
    shard.store.backlog_promote(1, 40)
    assert shard.reads.sizes(["bl:acme", "blc:acme"]) == [49, 30]  # the first of all was no more than its rate


def park_of(shard: Shard, fresh: dict[str, int], continued: dict[str, int]) -> None:
    for tier, counts in (("start", fresh), ("continue", continued)):
        for tenant, count in counts.items():
            shard.store.configure(50, scopes=[ScopeLimits(tenant=tenant, rate=LATER)])
            shard.store.enqueue([shard.job(tenant, parks=True, tier=tier) for _ in range(count)])
    shard.now_ms += 100_000
    waiting = [job_id for _, _, job_id in shard.store.peek(100)]
    shard.store.cancel(waiting)


def parked(shard: Shard) -> tuple[Backlog, Backlog]:
    found: list[Backlog] = []
    for kind in ("bl", "blc"):
        keys = [key.decode() for key in shard.client.scan_iter(f"{shard.keys.prefix}{kind}:*")]
        entries: Any = {key.rpartition(":")[2]: shard.client.zrange(key, 0, -1, withscores=True) for key in keys}
        found.append({tenant: [(job.decode(), int(due)) for job, due in jobs] for tenant, jobs in entries.items()})
    return found[0], found[1]


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 12345, 2_147_483_646, 2_147_483_647, 2**31 + 5])
@pytest.mark.parametrize("most", [1, 7, 64])
def test_a_draw_is_that_of_the_model(shard: Shard, seed: int, most: int) -> None:
    park_of(shard, {"a": 40, "b": 3, "c": 1}, {"a": 5, "d": 30})
    order = drawn(*parked(shard), seed=seed, most=most, weight=10, now_ms=shard.now_ms)
    before = shard.store.peek(100)
    assert before == []
    with_seq = shard.store.backlog_promote(seed, most)
    assert with_seq.pending == most
    rows = {record.id: shard.client.get(shard.keys.job(record.id)) for record in shard.reads.jobs(order) if record}
    place = {job_id: int(str(row)[4:16], 16) for job_id, row in rows.items() if row}
    assert sorted(place, key=place.__getitem__) == order


def test_over_100_000_draws_the_tiers_go_as_ten_to_one_and_none_starves() -> None:
    fresh = {f"t{number}": [(f"s{number}-{k}", 0) for k in range(64)] for number in range(5)}
    continued = {f"t{number}": [(f"c{number}-{k}", 0) for k in range(64)] for number in range(7)}
    for most in (64, 8, 1):
        counts: Counter[str] = Counter()
        seed, gap, longest = 1, 0, 0
        while counts.total() < 100_000:
            for job in drawn(fresh, continued, seed=seed, most=most, weight=10, now_ms=1):
                counts[job[0]] += 1
                gap = 0 if job[0] == "s" else gap + 1
                longest = max(longest, gap)
            seed = seed * 48271 % 2_147_483_647  # as seeds come: unlike each other
        assert counts["c"] / counts["s"] == pytest.approx(10, rel=0.02 if most > 1 else 0.04), most
        assert longest < {64: 22, 8: 100, 1: 200}[most]
