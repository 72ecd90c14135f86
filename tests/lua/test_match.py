"""`match`: a job that its worker has begun already is taken in and leased in one step, or goes into line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queueapp.policies.registry import DIRECT
from queueapp.states import Outcome, State
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.records import Enqueued, Matched, NewJob, Returned, Tier
from tests.lua.harness import LEASE_MS, Shard, completed

WORKER = "w1"
TRAFFIC = [("a", "main", 0), ("b", "fast", 7), ("a", "main", 3), ("a", "x", 0), ("b", "fast", 0)]


@pytest.fixture(autouse=True)
def known(shard: Shard) -> None:
    """The worker has said who it is."""
    shard.store.register(WORKER, {"name": "w"}, 600_000)


def match(shard: Shard, job: NewJob, worker: str = WORKER) -> Matched:
    return shard.store.match(job, worker, LEASE_MS)


def stored(shard: Shard, job: NewJob) -> tuple[State, int]:
    """Where it stands, and how often it was leased."""
    found = shard.reads.job(job.id)
    assert found is not None
    return found.state, found.attempts


def without_calls(snapshot: dict[str, Any]) -> dict[str, Any]:
    """What a lease by `match` and one by a worker's own call do not have in common: the number of the call."""
    for key, value in snapshot.items():
        if key.startswith("run:"):
            value.pop(b"ls")
        if key.startswith("worker:"):
            for name in (b"seq", b"alone"):
                value.pop(name, None)
    snapshot.pop("counts", None)  # nothing waits: a counter at zero, or none
    return snapshot


@pytest.mark.parametrize("policy", sorted(DIRECT))
@pytest.mark.parametrize("ceiling", [None, 5])
@pytest.mark.parametrize("tier", ["start", "continue"])
def test_it_leaves_the_shard_as_an_enqueue_and_a_lease_would(
    shard: Shard, policy: str, ceiling: int | None, tier: Tier
) -> None:
    found = []
    for matched in (True, False):
        for key in shard.client.keys(f"{shard.keys.prefix}*"):
            shard.client.delete(key)
        shard.store.register(WORKER, {"name": "w"}, 600_000)
        limits = [ScopeLimits(tenant="a", weight=3, max_in_flight=ceiling), ScopeLimits(tenant="b", min_share=1)]
        shard.store.configure(1, pool=PoolConf(policy=policy, max_in_flight=ceiling), scopes=limits[: ceiling or 1])
        for number, (tenant, lane, cost) in enumerate(TRAFFIC):
            job = shard.job(tenant, lane=lane, cost=cost, priority=number, deadline_ms=shard.now_ms + 60_000)
            job = replace(job, id=f"{number:022d}", tier=tier)
            if matched:
                leased = match(shard, job).job
            else:
                shard.add(job)
                [leased] = shard.lease()
            assert leased is not None
            assert (leased.id, leased.attempts, leased.deadline_ms) == (job.id, 1, shard.now_ms + LEASE_MS)
            if number == 1:
                assert shard.store.complete([completed(leased)]) == ["done"]
        assert shard.store.verify() == []
        found.append(without_calls(shard.snapshot()))
    assert found[0] == found[1]


def test_it_is_leased_although_others_stand_in_line_by_now(shard: Shard) -> None:
    waiting = shard.add(*(shard.job(tenant) for tenant in "abc"))
    job = shard.job("a")
    leased = match(shard, job).job
    assert leased is not None
    assert shard.store.verify() == []
    assert shard.client.zscore(shard.keys["wake"], "w") is not None, "the others are still announced"
    assert {one.id for one in shard.lease(9)} == set(waiting)
    assert shard.store.complete([completed(leased)]) == ["done"]
    assert stored(shard, job) == (State.ENDED, 1)


def test_it_is_charged_to_its_tenant_like_any_other(shard: Shard) -> None:
    """Whoever begins jobs so has no more than its share in the end."""
    shard.store.configure(1, pool=PoolConf(cost_unit="units"))
    shard.add(*(shard.job(tenant) for tenant in "ab" for _ in range(6)))
    for _ in range(3):
        match(shard, shard.job("a"))
    assert [leased.tenant for leased in shard.lease(3)] == ["b"] * 3
    assert shard.store.verify() == []


def test_its_loss_is_a_crash(shard: Shard) -> None:
    """The body has begun: the store need not be told any more."""
    job = shard.job(max_crashes=1)
    assert match(shard, job).job is not None
    shard.now_ms += LEASE_MS
    assert shard.store.partition_recover().dead == 1


CLOSED: dict[str, dict[str, Any]] = {
    "the pool is paused": {"pool": PoolConf(paused=True)},
    "the pool is full": {"pool": PoolConf(max_in_flight=1)},
    "the tenant is paused": {"scopes": [ScopeLimits(tenant="acme", paused=True)]},
    "the tenant is full": {"scopes": [ScopeLimits(tenant="acme", max_in_flight=1)]},
    "the lane is paused": {"scopes": [ScopeLimits(tenant="acme", lane="main", paused=True)]},
    "the lane is full": {"scopes": [ScopeLimits(tenant="acme", lane="main", max_in_flight=1)]},
    "no token is left": {"scopes": [ScopeLimits(tenant="acme", dispatch_rate=Rate(rate=1, period_ms=60_000))]},
    "a leader chooses": {"pool": PoolConf(dispatch="scheduled")},
}


@pytest.mark.parametrize("policy", ["tiered", "fifo", "wfq"])
@pytest.mark.parametrize("why", CLOSED)
def test_no_limit_is_passed(shard: Shard, why: str, policy: str) -> None:
    pool = replace(CLOSED[why].get("pool", PoolConf()), policy=policy)
    shard.store.configure(1, **{**CLOSED[why], "pool": replace(pool, paused=False, dispatch="direct")})
    shard.add(shard.job())
    shard.lease()
    shard.store.configure(2, **{**CLOSED[why], "pool": pool})
    job = shard.job()
    answer = match(shard, job)
    assert answer == Matched(answer=Enqueued(outcome="enqueued", id=job.id), job=None)
    assert stored(shard, job) == (State.INGRESS if why == "a leader chooses" else State.PENDING, 1)
    assert shard.store.verify() == []
    assert match(shard, job) == answer, "a repeat"


def test_one_that_may_not_start_runs_later_under_another_fence(shard: Shard) -> None:
    """The body that began unheard may write to the host's database under attempt 1; nobody else has that number."""
    job = shard.job(max_attempts=1, max_crashes=1)
    assert match(shard, job, worker="nobody").job is None
    assert shard.store.save(job.id, 1, {"progress": b"1"}) == "stale"
    assert shard.store.fsck("jobs", [(job.id, "0")], mend=False, limit=9).findings == []
    assert stored(shard, job) == (State.PENDING, 1)
    assert not shard.store.explain(job.id, live_ms=1_000, most=10, walked=10, looks=100).broken
    [leased] = shard.lease()
    assert (leased.attempts, leased.errors, leased.crashes) == (2, 0, 0)
    assert shard.store.save(job.id, 1, {"progress": b"1"}) == "stale"
    assert shard.store.complete([completed(replace(leased, attempts=1))]) == ["done"]
    assert stored(shard, job) == (State.ACTIVE, 2), "an outcome of the first attempt changes nothing"
    assert shard.store.complete([completed(leased)]) == ["done"]
    found = shard.reads.job(job.id)
    assert found is not None
    assert found.outcome is Outcome.COMPLETED
    assert shard.store.verify() == []


def test_so_it_does_where_a_leader_chooses(shard: Shard) -> None:
    term = shard.schedule()
    job = shard.job()
    assert match(shard, job).job is None
    assert shard.dispatch(term).jobs == 1
    [leased] = shard.lease()
    assert (leased.id, leased.attempts) == (job.id, 2)
    assert shard.store.verify() == []


def test_it_may_be_cancelled_and_moved_while_it_waits(shard: Shard) -> None:
    jobs = [shard.job() for _ in range(3)]
    for job in jobs:
        match(shard, job, worker="nobody")
    assert shard.store.cancel([jobs[0].id]) == ["cancelled"]
    assert shard.store.move_to_dlq([jobs[1].id], "why") == ["moved"]
    assert shard.store.depart([jobs[2].id], "CODE.0") == ["moving"]
    assert shard.store.verify() == []


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        (ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=60_000)), "throttled"),
        (ScopeLimits(tenant="acme", backlog_limit=1), "backlog_full"),
    ],
)
def test_the_front_door_refuses_as_ever_and_leaves_no_trace(shard: Shard, limits: ScopeLimits, outcome: str) -> None:
    shard.add(shard.job())
    shard.store.configure(1, scopes=[limits])
    if outcome == "throttled":
        assert match(shard, shard.job()).job is not None, "the one that the rate lets in"
    before = shard.snapshot()
    refused = match(shard, shard.job())
    assert (refused.answer.outcome, refused.job) == (outcome, None)
    assert refused.answer.wait_ms > 0
    assert shard.snapshot() == before


def test_an_id_with_other_arguments_is_a_conflict(shard: Shard) -> None:
    job = shard.job()
    shard.add(job)
    before = shard.snapshot()
    answer = match(shard, replace(job, fingerprint="beef"))
    assert (answer.answer.outcome, answer.job) == ("conflict", None)
    assert shard.snapshot() == before


def test_a_repeat_finds_no_lease_that_is_gone(shard: Shard) -> None:
    """Its reply was lost for longer than its lease: another worker may have it by now."""
    job = shard.job()
    first = match(shard, job)
    assert match(shard, job) == first
    assert match(shard, job, worker="w2").job is None
    shard.now_ms += LEASE_MS
    shard.store.partition_recover()
    assert match(shard, job) == Matched(answer=first.answer, job=None)
    [again] = shard.lease()
    assert again.attempts == 2
    assert match(shard, job).job is None, "this worker has it, but not by that call"


def test_a_repeated_cycle_of_its_worker_does_not_answer_it(shard: Shard) -> None:
    """Leases that a cycle granted come again when its reply was lost; this one its worker holds already."""
    shard.add(shard.job())
    first = shard.store.cycle(WORKER, 1, want=1, begin=1, lease_ms=LEASE_MS)
    matched = match(shard, shard.job()).job
    assert matched is not None
    again = shard.store.cycle(WORKER, 1, want=1, begin=1, lease_ms=LEASE_MS, extend=[(matched.id, 1)])
    assert list(again.jobs) == list(first.jobs)
    assert again.lost == []
    assert shard.store.partition_requeue([Returned(id=matched.id, attempts=1)]) == ["done"]


def test_after_a_change_of_policy_it_stands_in_the_new_order(shard: Shard) -> None:
    shard.add(*(shard.job(tenant) for tenant in "ab" for _ in range(3)))
    shard.store.configure(1, pool=PoolConf(policy="wfq"))
    assert match(shard, shard.job("a")).job is not None
    match(shard, shard.job("a"), worker="nobody")
    assert shard.store.verify() == []
    while shard.store.rerank().more:
        pass
    assert len(shard.lease(10)) == 7
    assert shard.store.verify() == []


def test_cycle_tells_the_version_of_the_configuration(shard: Shard) -> None:
    assert shard.store.cycle(WORKER, 1, want=0, begin=0, lease_ms=LEASE_MS).version == 0
    shard.store.configure(1_800_000_000_000_123, scopes=[ScopeLimits(tenant="a", weight=2)])
    assert shard.store.cycle(WORKER, 2, want=0, begin=0, lease_ms=LEASE_MS).version == 1_800_000_000_000_123


class TestUnlimited:
    """What a worker knows beforehand of what may begin at once."""

    SCOPES = (("acme", "main"), ("acme", "mail"), ("b", "main"))

    def test_nothing_configured_holds_nothing_back(self, shard: Shard) -> None:
        assert shard.store.unlimited(self.SCOPES) == (0, [True] * 3)
        shard.store.configure(7, scopes=[ScopeLimits(tenant="acme", weight=2)])
        assert shard.store.unlimited(self.SCOPES) == (7, [True] * 3)

    @pytest.mark.parametrize("why", CLOSED)
    def test_what_may_stop_a_lease_is_seen(self, shard: Shard, why: str) -> None:
        shard.store.configure(1, **CLOSED[why])
        _, free = shard.store.unlimited(self.SCOPES)
        if "pool" in CLOSED[why]:
            assert free == [False] * 3
        else:
            assert free == [False, "lane" in why, True]

    @pytest.mark.parametrize(
        "limits", [{"rate": Rate(rate=1, period_ms=60_000)}, {"backlog_limit": 1}, {"min_share": 1}]
    )
    def test_so_is_what_the_front_door_asks(self, shard: Shard, limits: dict[str, Any]) -> None:
        shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", **limits)])
        assert shard.store.unlimited(self.SCOPES) == (1, [False, False, True])

    def test_and_the_room_of_the_pool(self, shard: Shard) -> None:
        shard.store.configure(1, pool=PoolConf(backlog_limit=1))
        assert shard.store.unlimited(self.SCOPES) == (1, [False] * 3)
