"""`match` of jobs of tier `continue`, and of those that go on with what was let in before: steps of runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queueapp.states import State
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.records import Enqueued, KeyUse, Matched, NewJob, Returned, Tier
from tests.lua.harness import LEASE_MS, Shard, completed, failed

WORKER = "w1"
RATE = ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=60_000))


@pytest.fixture(autouse=True)
def known(shard: Shard) -> None:
    """The worker has said who it is."""
    shard.store.register(WORKER, {"name": "w"}, 600_000)


def step(shard: Shard, tenant: str = "acme", **options: Any) -> NewJob:
    return shard.job(tenant, **{"tier": "continue", "admitted": True, **options})


def match(shard: Shard, job: NewJob, worker: str = WORKER) -> Matched:
    return shard.store.match(job, worker, LEASE_MS)


def state(shard: Shard, job: NewJob) -> tuple[State, int]:
    found = shard.reads.job(job.id)
    assert found is not None
    return found.state, found.attempts


AGAIN = ["it failed", "it was given back", "its worker was lost"]


@pytest.mark.parametrize("policy", ["tiered", "fifo", "wfq"])
@pytest.mark.parametrize("why", AGAIN)
def test_one_that_comes_again_stands_where_its_tier_does(shard: Shard, why: str, policy: str) -> None:
    """It may be the first of its tier that the pool has ever seen, and never stood in line before."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    job = step(shard, max_attempts=2)
    leased = match(shard, job).job
    assert leased is not None
    fresh = shard.add(*(shard.job("acme") for _ in range(3)))
    match why:
        case "it failed":
            assert shard.store.fail([failed(leased, retry_ms=5)]) == ["retry"]
            shard.now_ms += 5
            shard.store.promote_due()
        case "it was given back":
            assert shard.store.partition_requeue([Returned(id=job.id, attempts=1)]) == ["done"]
        case _:
            shard.now_ms += LEASE_MS
            assert shard.store.partition_recover().pending == 1
    assert shard.store.verify() == []
    order = [one.id for one in shard.lease(9)]
    assert sorted(order) == sorted([job.id, *fresh])
    assert policy != "tiered" or order[0] == job.id, "before the fresh work of its lane"
    assert shard.store.verify() == []


@pytest.mark.parametrize("dispatch", ["direct", "scheduled"])
def test_one_that_may_not_start_stands_where_its_tier_does(shard: Shard, dispatch: str) -> None:
    fresh = shard.add(*(shard.job("acme") for _ in range(2)))
    job = step(shard)
    if dispatch == "direct":
        assert match(shard, job, worker="nobody") == Matched(answer=Enqueued(outcome="enqueued", id=job.id), job=None)
    else:
        term = shard.schedule()
        assert match(shard, job).job is None
        assert shard.store.verify() == []
        assert shard.dispatch(term).jobs == 3
    assert shard.store.verify() == []
    leased = shard.lease(9)
    assert [one.id for one in leased] == [job.id, *fresh]
    assert leased[0].attempts == 2, "the first was that of the body that began unheard"
    assert shard.store.complete([completed(one) for one in leased]) == ["done"] * 3
    assert shard.store.verify() == []


def test_above_a_rate_it_is_parked_and_its_first_attempt_is_used_up(shard: Shard) -> None:
    """The body that began may write to the host's database under attempt 1 for as long as it likes."""
    shard.store.configure(1, scopes=[RATE])
    assert match(shard, step(shard)).job is not None, "the one that the rate lets in"
    job = step(shard)
    answer = match(shard, job)
    assert answer == Matched(answer=Enqueued(outcome="parked", id=job.id, wait_ms=60_000), job=None)
    assert state(shard, job) == (State.BACKLOG, 1)
    assert shard.store.verify() == []
    shard.now_ms += 10
    assert match(shard, job).answer.wait_ms == 59_990, "a repeat"
    assert shard.store.save(job.id, 1, {"progress": b"1"}) == "stale"
    assert shard.store.fsck("jobs", [(job.id, "0")], mend=False, limit=9).findings == []
    assert not shard.store.explain(job.id, live_ms=1_000, most=10, walked=10, looks=100).broken
    shard.now_ms += 60_000
    assert shard.store.backlog_promote(1).pending == 1
    assert shard.store.verify() == []
    [leased] = shard.lease()
    assert (leased.id, leased.attempts, leased.errors, leased.crashes) == (job.id, 2, 0, 0)
    assert shard.store.complete([completed(leased)]) == ["done"]
    assert shard.store.verify() == []


def test_parked_so_it_may_be_cancelled_set_aside_and_moved(shard: Shard) -> None:
    shard.store.configure(1, scopes=[RATE])
    match(shard, step(shard))
    jobs = [step(shard) for _ in range(3)]
    assert [match(shard, job).answer.outcome for job in jobs] == ["parked"] * 3
    assert shard.store.cancel([jobs[0].id]) == ["cancelled"]
    assert shard.store.move_to_dlq([jobs[1].id], "why") == ["moved"]
    assert shard.store.depart([jobs[2].id], "CODE.0") == ["moving"]
    assert shard.store.verify() == []


@pytest.mark.parametrize(
    "limits", [{"pool": PoolConf(backlog_limit=1)}, {"scopes": [ScopeLimits(tenant="acme", backlog_limit=1)]}]
)
def test_a_full_backlog_refuses_nothing_that_goes_on(shard: Shard, limits: dict[str, Any]) -> None:
    shard.store.configure(1, **limits)
    shard.add(shard.job())
    goes_on, fresh = step(shard), shard.job()
    assert match(shard, goes_on).job is not None
    assert match(shard, fresh).answer.outcome == "backlog_full"
    several = shard.store.enqueue([step(shard), replace(fresh, admitted=False), step(shard)])
    assert [one.outcome for one in several] == ["enqueued", "backlog_full", "enqueued"]
    assert shard.store.verify() == []


def test_enqueued_above_a_rate_it_is_parked_whatever_its_task_says(shard: Shard) -> None:
    shard.store.configure(1, scopes=[RATE])
    answers = shard.store.enqueue([step(shard), step(shard), shard.job()])
    assert [one.outcome for one in answers] == ["enqueued", "parked", "throttled"]


WHERE: dict[str, dict[str, Any]] = {
    "in line": {},
    "in its lane": {"lane": "mail"},
    "scheduled": {"delay_ms": 5},
    "behind a key": {"keys": (KeyUse(digest="k" * 22, text="k", limit=1, pattern="p" * 22),)},
}


@pytest.mark.parametrize("tier", ["start", "continue"])
@pytest.mark.parametrize("dispatch", ["direct", "scheduled"])
@pytest.mark.parametrize("where", [*WHERE, "parked"])
def test_of_what_may_have_begun_unheard_no_lease_has_the_first_fence(
    shard: Shard, where: str, dispatch: str, tier: Tier
) -> None:
    if where == "parked":
        shard.store.configure(1, scopes=[RATE])
        shard.store.cancel(shard.add(shard.job()))
    term = shard.schedule() if dispatch == "scheduled" else None
    job = shard.job(**{"tier": tier, "admitted": True, "unheard": True, **WHERE.get(where, {})})
    for _ in range(2):
        assert shard.store.enqueue([job])[0].outcome in ("enqueued", "parked")
        assert shard.store.verify() == []
    assert state(shard, job)[1] == 1
    assert match(shard, replace(job, keys=())).job is None, "the one that began it and comes late"
    assert shard.store.fsck("jobs", [(job.id, "0")], mend=False, limit=9).findings == []
    shard.now_ms += 60_000
    shard.store.promote_due()
    shard.store.backlog_promote(1)
    if term is not None:
        shard.dispatch(term)
    [leased] = shard.lease()
    assert (leased.attempts, leased.errors, leased.crashes) == (2, 0, 0)
    assert shard.store.save(job.id, 1, {"progress": b"1"}) == "stale"
    assert shard.store.verify() == []
    assert shard.store.complete([completed(leased)]) == ["done"]
    assert shard.store.verify() == []
