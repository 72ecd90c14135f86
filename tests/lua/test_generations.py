"""A change of policy while work waits: what moves over, when, in which order, and that nothing is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.errors import PolicyBusy
from queueapp.policies.registry import DIRECT
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.leader_records import Term
from queueapp.store.records import Completed, NewJob, Returned
from queueapp.store.views import Change
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.lua.keyed import keyed, waiters

POLICIES = sorted(DIRECT)


def state(shard: Shard, job_id: str) -> str:
    record = shard.reads.job(job_id)
    assert record is not None
    return record.state.value


def drained(shard: Shard) -> list[str]:
    order = []
    while found := shard.lease(7):
        order += [job.id for job in found]
    return order


def change(shard: Shard, policy: str, version: int = 2, **options: Any) -> None:
    shard.store.configure(version, pool=PoolConf(policy=policy, **options))


def moved_over(shard: Shard, most: int = 250) -> int:
    """All shares that it takes; how many jobs the last order still had."""
    moved = 0
    while (share := shard.store.rerank(most)).more:
        moved += share.moved
    assert not any(key.startswith("~") != (generation(shard) % 2 == 1) for key in in_line(shard))
    return moved + share.moved


def in_line(shard: Shard) -> list[str]:
    kinds = (
        "walk",
        "lanes",
        "q",
        "qc",
        "tags",
        "ltags",
        "heads",
        "policy",
        "sublanes",
        "parked",
        "blocked",
        "waitkeys",
    )
    return [key for key in shard.snapshot() if key.removeprefix("~").split(":")[0] in kinds]


def standing_anew(shard: Shard) -> set[str]:
    """The jobs of the first generation after none."""
    queues = (members for key, members in shard.snapshot().items() if key.startswith("~q:"))
    return {member.decode() for members in queues for member, _ in members}


def generation(shard: Shard) -> int:
    return int(shard.client.hget(shard.keys["conf"], "gen") or 0)


def some(shard: Shard, number: int = 12, **options: Any) -> list[NewJob]:
    return [shard.job(f"t{index % 3}", lane=f"l{index % 2}", priority=index % 5, **options) for index in range(number)]


# -- the whole way -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", POLICIES)
@pytest.mark.parametrize("before", POLICIES)
def test_all_that_waits_runs_once_under_the_new_policy(shard: Shard, before: str, after: str) -> None:
    change(shard, before, 1)
    ids = shard.add(*some(shard, 40))
    change(shard, after)
    assert shard.store.verify() == []
    ids += shard.add(*(shard.job(f"t{number % 4}") for number in range(5)))
    order = drained(shard)
    assert sorted(order) == sorted(ids)
    assert shard.store.verify() == []
    moved_over(shard)
    conf = shard.snapshot()["conf"]
    assert b"old" not in conf
    assert b"moved" not in conf
    assert generation(shard) == (0 if before == after else 1)


@pytest.mark.parametrize("before", [name for name in POLICIES if name != "fifo"])
def test_jobs_keep_their_number_and_are_ranked_by_the_new_rule(shard: Shard, before: str) -> None:
    change(shard, before, 1)
    ids = shard.add(*some(shard))
    change(shard, "fifo")
    assert moved_over(shard, most=2) == 12
    assert drained(shard) == ids


@pytest.mark.parametrize("before", [name for name in POLICIES if name not in ("tiered", "ring")])
@pytest.mark.parametrize(("tenants", "lanes", "most"), [(3, 2, 1), (23, 2, 15), (2, 23, 15)])
def test_an_order_is_moved_in_its_order(shard: Shard, before: str, tenants: int, lanes: int, most: int) -> None:
    """Whatever stood first under the old policy comes into the new generation first, also among many."""
    change(shard, before, 1)
    jobs = [(f"t{number * 7 % tenants:02}", f"l{number * 5 % lanes:02}", number % 4) for number in range(60)]
    shard.add(*(shard.job(tenant, lane=lane, priority=priority) for tenant, lane, priority in jobs))
    wanted = [job_id for _, _, job_id in shard.store.peek(60)]
    change(shard, "ring")
    for moved in range(most, 61, most):
        assert shard.store.rerank(most).moved == most
        assert standing_anew(shard) == set(wanted[:moved])


def test_two_changes_one_after_the_other_come_back_to_plain_names(shard: Shard) -> None:
    ids = shard.add(*some(shard))
    change(shard, "fifo")
    moved_over(shard)
    assert in_line(shard)
    assert all(key.startswith("~") for key in in_line(shard))
    change(shard, "tiered", 3)
    moved_over(shard)
    assert not any(key.startswith("~") for key in in_line(shard))
    assert sorted(drained(shard)) == sorted(ids)


def test_another_change_is_refused_until_the_last_one_is_through(shard: Shard) -> None:
    shard.add(*some(shard))
    change(shard, "fifo")
    before = shard.snapshot()
    for policy in ("tiered", "priority"):
        with pytest.raises(PolicyBusy):
            change(shard, policy, 3)
    assert shard.snapshot() == before
    change(shard, "fifo", 3, paused=True)  # nothing that orders
    moved_over(shard)
    change(shard, "tiered", 4)
    assert generation(shard) == 2


def test_a_repeated_change_begins_no_second_generation(shard: Shard) -> None:
    shard.add(*some(shard))
    for _ in range(3):
        change(shard, "fifo")
    assert generation(shard) == 1
    moved_over(shard)
    change(shard, "fifo")
    assert generation(shard) == 1


def test_progress_counts_what_moved_and_what_ended_on_the_way(shard: Shard) -> None:
    ids = shard.add(*some(shard, 20))
    shard.add(shard.job(delay_ms=900))
    change(shard, "fifo")
    reranking = shard.reads.overview().reranking
    assert reranking is not None
    assert (reranking.policy, reranking.moved, reranking.total) == ("tiered", 0, 20)
    share = shard.store.rerank(5)
    assert (share.moved, share.gone, share.total, share.more) == (5, 5, 20, True)
    shard.store.cancel(ids)
    assert shard.reads.overview().reranking == Change(policy="tiered", moved=20, total=20)
    moved_over(shard)
    assert shard.reads.overview().reranking is None


# -- what runs meanwhile -------------------------------------------------------------------------------------------


def test_a_worker_alone_moves_what_it_wants_and_is_never_idle(shard: Shard) -> None:
    """No scheduler: each call brings over as much as it leases, and says that there is more."""
    ids = shard.add(*(shard.job(f"t{index % 90}") for index in range(200)))
    change(shard, "fifo")
    assert shard.snapshot()["wake"] == [(b"w", 0.0)]
    leased: list[str] = []
    while len(leased) < 200:
        found = shard.lease(8)
        assert len(found) == 8, f"idle after {len(leased)}"
        leased += [job.id for job in found]
    assert sorted(leased) == sorted(ids)


@pytest.mark.parametrize("how", ["check_and_lease", "cycle"])
def test_a_call_that_found_less_than_it_wants_says_that_more_may_come(shard: Shard, how: str) -> None:
    """The first of the old order are paused: call again at once, until a job that may run has come over."""
    change(shard, "fifo", 1)
    shard.add(*(shard.job("a") for _ in range(120)))
    (free,) = shard.add(shard.job("z"))
    change(shard, "tiered")
    shard.store.configure(3, scopes=[ScopeLimits(tenant="a", paused=True)])
    call = getattr(shard.store, how)
    answers = [call("w", seq, want=4, begin=0, lease_ms=LEASE_MS) for seq in range(1, 10)]
    first = next(index for index, answer in enumerate(answers) if answer.jobs)
    assert first > 3
    assert [job.id for job in answers[first].jobs] == [free]
    assert all(answer.more for answer in answers[:first])
    assert not answers[-1].more
    assert not answers[-1].runnable
    assert "wake" not in shard.snapshot()


@pytest.mark.parametrize("how", ["check_and_lease", "cycle"])
@pytest.mark.parametrize("want", [0, 3])
def test_a_worker_that_has_what_it_wants_is_not_asked_to_call_again(shard: Shard, how: str, want: int) -> None:
    shard.add(*(shard.job() for _ in range(120)))
    change(shard, "fifo")
    answer = getattr(shard.store, how)("w", 1, want=want, begin=0, lease_ms=LEASE_MS)
    assert len(answer.jobs) == want
    assert not answer.more
    assert answer.runnable


def test_a_paused_pool_moves_and_wakes_nobody(shard: Shard) -> None:
    shard.add(*(shard.job() for _ in range(120)))
    change(shard, "fifo", paused=True)
    assert "wake" not in shard.snapshot()
    assert shard.lease(5) == []
    reranking = shard.reads.overview().reranking
    assert reranking is not None
    assert reranking.moved == 16
    change(shard, "fifo", 3)
    assert "wake" in shard.snapshot()


def test_new_and_returned_work_enters_the_new_generation(shard: Shard) -> None:
    change(shard, "wfq", 1)
    shard.add(*some(shard, 6))
    (returned, lost) = shard.lease(2, begin=0)
    dead = shard.add(shard.job("t9"))
    shard.store.move_to_dlq(dead, "by_hand")
    change(shard, "priority")
    late = shard.add(shard.job("t9", delay_ms=5), shard.job("t9"))
    shard.store.partition_requeue([Returned(id=returned.id, attempts=1)])
    shard.now_ms += LEASE_MS
    shard.store.partition_recover()
    shard.store.promote_due()
    shard.store.retry_from_dlq(dead)
    stand = standing_anew(shard)
    assert stand == {*late, *dead, returned.id, lost.id}


def test_a_lease_of_an_older_generation_settles_nothing_of_the_new_one(shard: Shard) -> None:
    """Its charge was made by turns that are no more."""
    shard.add(*(shard.job("a") for _ in range(3)), *(shard.job("b") for _ in range(3)))
    (old,) = shard.lease()
    change(shard, "fifo")
    moved_over(shard)
    change(shard, "tiered", 3)
    moved_over(shard)
    (new,) = shard.lease()
    shard.now_ms += 9_000
    before = shard.snapshot()
    shard.store.complete([completed(old, run_ms=9_000)])
    after = shard.snapshot()
    for key in ("walk", "lanes:a", "lanes:b", "tags", "ltags:a", "policy"):
        assert after.get(key) == before.get(key), key
    assert shard.client.hget(shard.keys.run(new.id), "gn") == b"2"
    shard.store.complete([completed(new, run_ms=9_000)])
    assert shard.snapshot()["walk"] != after["walk"]


def test_a_rank_of_an_older_generation_is_not_taken_for_one_of_the_new(shard: Shard) -> None:
    """wfq, then fifo, then wfq again: finish tags begin anew, and an old one would be far ahead of all."""
    change(shard, "wfq", 1)
    (job_id,) = shard.add(shard.job("a", cost=1_000_000, max_crashes=9))
    shard.add(*some(shard, 3))
    leased = shard.lease(4, begin=0)
    (job,) = [job for job in leased if job.id == job_id]
    shard.add(*some(shard, 3))
    change(shard, "fifo")
    moved_over(shard)
    change(shard, "wfq", 3)
    moved_over(shard)
    shard.store.configure(4, scopes=[ScopeLimits(tenant="a", weight=1_000)])
    shard.store.partition_requeue([Returned(id=job.id, attempts=job.attempts)])
    [(_, rank)] = shard.snapshot()["q:a|main"]
    assert rank == 1_000.0


def test_a_job_that_came_back_keeps_its_rank_when_the_same_rule_comes_back(shard: Shard) -> None:
    """Its row cannot tell: it says since when the job waits anew."""
    change(shard, "aging", 1)
    (first,) = shard.add(shard.job("a"))
    (job,) = shard.lease(begin=0)
    shard.now_ms += 1_000
    (second,) = shard.add(shard.job("b"))
    shard.now_ms += 1_000
    shard.store.partition_requeue([Returned(id=job.id, attempts=1)])
    for version, policy in ((2, "fifo"), (3, "aging")):
        change(shard, policy, version)
        moved_over(shard)
    assert [member[12:].decode() for key in ("a", "b") for member, _ in shard.snapshot()[f"q:{key}|main"]] == [
        first,
        second,
    ]
    assert drained(shard) == [first, second]


def test_a_job_that_was_tried_again_waits_since_then(shard: Shard) -> None:
    """Not since it was submitted: its hash says so, and what it kept from its lease."""
    shard.add(shard.job("a", max_attempts=9))
    (first,) = shard.lease()
    shard.store.fail([failed(first, retry_ms=500)])
    shard.now_ms += 300
    (second,) = shard.add(shard.job("b"))
    shard.now_ms += 300
    shard.store.promote_due()
    change(shard, "aging", 1)
    moved_over(shard)
    assert drained(shard) == [second, first.id]


# -- what did not stand in the old walk ---------------------------------------------------------------------------


def paused_things(shard: Shard) -> list[str]:
    """A paused tenant, a paused lane, a tenant and a lane at their ceilings, a job that waits for a key."""
    shard.store.configure(
        5,
        scopes=[
            ScopeLimits(tenant="paused", paused=True),
            ScopeLimits(tenant="half", lane="off", paused=True),
            ScopeLimits(tenant="full", max_in_flight=1),
            ScopeLimits(tenant="half", lane="full", max_in_flight=1),
        ],
    )
    shard.add(shard.job("full"), shard.job("half", lane="full"), keyed(shard, "k", tenant="half"))
    assert len(shard.lease(3)) == 3
    ids = shard.add(
        *(shard.job("paused", lane=lane) for lane in ("main", "x")),
        *(shard.job("half", lane=lane) for lane in ("off", "full", "main")),
        shard.job("full"),
        keyed(shard, "k", tenant="half"),
        keyed(shard, "k", tenant="key"),
    )
    assert shard.lease(1, "w2")
    assert shard.lease(1, "w2") == []
    assert waiters(shard, "k") != []
    return [job_id for job_id in ids if state(shard, job_id) == "pending"]


def lift(shard: Shard, version: int) -> None:
    scopes = [("paused", ""), ("half", "off"), ("full", ""), ("half", "full")]
    shard.store.configure(version, scopes=[ScopeLimits(tenant=t, lane=lane, clear=True) for t, lane in scopes])


@pytest.mark.parametrize("before", POLICIES)
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_what_is_paused_full_or_parked_moves_too(shard: Shard, before: str, when: str) -> None:
    """Whenever its limits go: before the first share, between two, or when all is done."""
    change(shard, before, 1)
    ids = paused_things(shard)
    after = "fifo" if before != "fifo" else "tiered"
    change(shard, after, 6)
    assert shard.store.verify() == []
    if when == "before":
        lift(shard, 7)
    shard.store.rerank(1)
    assert shard.store.verify() == []
    if when == "between":
        lift(shard, 7)
    while shard.store.rerank(1).more:
        assert shard.store.verify() == []
    if when == "after":
        lift(shard, 7)
    for worker in ("w1", "w2"):
        held = shard.snapshot().get(f"held:{worker}", ())
        shard.store.complete([Completed(id=job_id.decode(), attempts=1, run_ms=1) for job_id in held])
    order = []
    while found := shard.lease(3):
        order += [job.id for job in found]
        shard.store.complete([completed(job) for job in found])
    assert sorted(order) == sorted(ids)


def test_limits_that_go_after_the_scan_has_begun_expose_what_they_held(shard: Shard) -> None:
    """The page of `limits` that had them may be over, or yet to come without them."""
    shard.store.configure(
        1, scopes=[ScopeLimits(tenant="a", lane="x", paused=True), ScopeLimits(tenant="b", paused=True)]
    )
    ids = shard.add(shard.job("a", lane="x"), shard.job("b"))
    change(shard, "fifo")
    shard.store.configure(
        3, scopes=[ScopeLimits(tenant="a", lane="x", clear=True), ScopeLimits(tenant="b", clear=True)]
    )
    shard.client.hset(shard.keys["conf"], "old", b"tiered|deadline|60000|2|s|0")
    moved_over(shard)
    assert sorted(drained(shard)) == sorted(ids)


def test_what_tenants_without_work_left_behind_goes_too(shard: Shard) -> None:
    """Tags of a tenant that is not even known any more, and of one that is forgotten while jobs move."""
    keep = {"result_ttl_ms": 0, "result_max": 0, "dead_ttl_ms": 0, "dead_max": 0, "tenants": 0}
    x, y = ([shard.job(tenant, lane=lane, cost=90) for tenant in ("gone", "going")] for lane in "xy")
    shard.add(*x, *(shard.job("stays", cost=1) for _ in range(20)))
    left, last = shard.add(*y)
    shard.store.complete([completed(job) for job in shard.lease(6)])
    shard.store.cancel([left])
    shard.store.trim(**keep)
    assert {"tags", "ltags:gone", "ltags:going"} <= shard.snapshot().keys()
    assert b"gone" not in dict(shard.snapshot()["tenants"])
    change(shard, "fifo")
    shard.store.rerank(1)
    shard.store.cancel([last])
    shard.store.trim(**keep)
    moved_over(shard)


# -- what ends meanwhile -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", POLICIES)
@pytest.mark.parametrize("how", ["cancel", "move_to_dlq", "expire", "cycle"])
def test_what_ends_in_the_old_generation_leaves_it(shard: Shard, before: str, how: str) -> None:
    change(shard, before, 1)
    options: dict[str, Any] = {"expires_after_ms": 50} if how in ("expire", "cycle") else {}
    jobs = [*some(shard, 4, **options), keyed(shard, "k", **options), shard.job(tier="continue", **options)]
    ids = shard.add(*jobs)
    (stays,) = shard.add(shard.job("t0", lane="l0"))
    change(shard, "edf" if before != "edf" else "fifo")
    shard.now_ms += 60
    if how == "cancel":
        assert set(shard.store.cancel(ids)) == {"cancelled"}
    elif how == "move_to_dlq":
        assert set(shard.store.move_to_dlq(ids, "by_hand")) == {"moved"}
    elif how == "expire":
        assert shard.store.promote_due().expired == 6
    else:
        shard.store.cycle("w", 1, want=0, begin=0, lease_ms=LEASE_MS)
    assert shard.store.verify() == []
    moved_over(shard)
    assert drained(shard) == [stays]


@pytest.mark.dirty_store
@pytest.mark.parametrize("how", ["gone", "nonsense", "wrong type", "another tenant"])
def test_a_row_that_nobody_can_read_is_set_aside_and_holds_nobody_up(shard: Shard, how: str) -> None:
    bad, good = shard.add(keyed(shard, "k", expires_after_ms=60_000), shard.job())
    key = shard.keys.job(bad)
    if how == "gone":
        shard.client.delete(key)
    elif how == "nonsense":
        shard.client.set(key, "somebody else's")
    elif how == "wrong type":
        shard.client.delete(key)
        shard.client.hset(key, "a", 1)
    else:
        shard.client.set(key, shard.snapshot()[f"job:{bad}"].replace(b"acme", b"zeta"))
    change(shard, "fifo")
    moved_over(shard)
    seen = shard.snapshot()
    assert seen["quarantine"] == {bad.encode()}
    assert not {"expiring", "keysets", "keynames", "keyusers", "~sublanes"} & seen.keys()
    assert drained(shard) == [good]
    assert shard.snapshot()["counts"] == {b"w": b"0"}


def test_a_job_that_stands_in_the_old_order_but_is_no_longer_pending_is_only_taken_out(shard: Shard) -> None:
    """What a script that broke in its midst would leave behind."""
    (job_id,) = shard.add(shard.job())
    shard.lease()
    shard.add(shard.job())
    change(shard, "fifo")
    shard.client.zadd(shard.keys["q:acme|main"], {job_id: 0})
    moved_over(shard)
    assert state(shard, job_id) == "active"


# -- what readers see ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", POLICIES)
def test_lists_and_words_know_both_generations(shard: Shard, before: str) -> None:
    change(shard, before, 1)
    ids = shard.add(*(shard.job("a", lane="x") for _ in range(3)), keyed(shard, "k", tenant="a", lane="x"))
    change(shard, "priority" if before != "priority" else "fifo")
    shard.now_ms += 10
    ids += shard.add(shard.job("a", lane="y"))
    queues = shard.reads.queues
    of = queues.generations()
    assert queues.lanes("a", 9, of) == ["x", "y"]
    assert list(queues.sub_lanes("a", 9, of).values()) == [True]
    assert queues.sizes(["<q:a|x", "q:a|x", "<q:a|y", "q:a|y"], of) == [4, 0, 0, 1]
    page = shard.reads.browse("<q:a|x", count=2)
    rest = shard.reads.browse("<q:a|x", count=2, after=page.cursor)
    assert [*page.ids, *rest.ids] == ids[:3]
    assert shard.reads.browse("q:a|y", count=2).ids == [ids[4]]
    assert {job_id for _, _, job_id in shard.store.peek(9)} == set(ids)
    found = [job.id for job in shard.store.oldest().jobs]
    assert found[0] == ids[0]
    assert ids[4] in found
    facts = shard.store.explain(ids[2], live_ms=1_000, most=3, walked=9, looks=50)
    assert (facts.old_policy, facts.place, facts.moved, facts.moving) == (before, 2, 0, 4)
    assert facts.ahead is None
    newer = shard.store.explain(ids[4], live_ms=1_000, most=3, walked=9, looks=50)
    assert (newer.old_policy, newer.ahead_exact) == ("", False)
    moved_over(shard)
    assert shard.reads.browse("<q:a|x", count=2).ids == []
    assert shard.store.explain(ids[2], live_ms=1_000, most=3, walked=9, looks=50).old_policy == ""


def test_what_was_parked_in_the_old_generation_is_found_among_the_oldest(shard: Shard) -> None:
    shard.add(keyed(shard, "k"))
    shard.lease()
    (waits,) = shard.add(keyed(shard, "k"))
    assert shard.lease() == []
    shard.now_ms += 100
    change(shard, "fifo")
    answer = shard.store.oldest()
    assert answer.cursor == "po0"
    found = shard.store.oldest(first=answer.first, cursor=answer.cursor)
    assert [job.id for job in found.jobs] == [waits]
    assert (found.first, found.cursor) == (-1, "-1")
    moved_over(shard)
    assert shard.store.oldest(first=-1, cursor="po0").cursor == "-1"


# -- a large backlog -----------------------------------------------------------------------------------------------


@pytest.mark.dirty_store  # a recount of so many takes seconds
@pytest.mark.parametrize("after", ["tiered", "wfq"])
def test_a_large_backlog_moves_in_bounded_calls_while_work_goes_on(shard: Shard, after: str) -> None:
    """20,000 jobs, one tenant with nearly all of them: no call takes long, nobody is idle, a newcomer does not wait.

    Those who move it die between their shares: whoever comes next goes on.
    """
    change(shard, "fifo", 1)
    for _ in range(20):
        shard.add(*(shard.job("big") for _ in range(990)), *(shard.job(f"t{number}") for number in range(10)))
    change(shard, after)
    (newcomer,) = shard.add(shard.job("new"))
    seen: list[int] = []
    leased: list[str] = []
    shares = 0
    while (share := shard.store.rerank()).more:
        shares += 1
        assert share.moved <= 250
        assert share.gone - (seen[-1] if seen else 0) >= share.moved
        seen.append(share.gone)
        if shares % 4 == 1:
            found = shard.lease(16)
            assert len(found) == 16
            leased += [job.id for job in found]
            shard.store.complete([completed(job) for job in found])
    assert seen == sorted(seen)
    assert share.gone == share.total == 20_000
    assert shares <= 20_000 / 250 + 10
    assert newcomer in leased[:16]
    assert len(set(leased)) == len(leased)
    queues = list(shard.client.scan_iter(f"{shard.keys.prefix}*q:*"))
    assert all(key.startswith(f"{shard.keys.prefix}~q:".encode()) for key in queues)
    assert sum(shard.client.zcard(key) for key in queues) == 20_001 - len(leased) == shard.reads.overview().waiting


def test_the_commands_of_a_share_are_bounded_whatever_stands_there(shard: Shard) -> None:
    """Tenants, lanes and limits beyond number, and many whose jobs were all cancelled."""
    shard.store.configure(1, scopes=[ScopeLimits(tenant=f"p{number}", paused=True) for number in range(600)])
    shard.add(*(shard.job(f"t{number}", lane=f"l{number % 7}") for number in range(400)))
    ids = shard.add(*(shard.job(f"gone{number}") for number in range(600)))
    change(shard, "wfq")
    shard.store.cancel(ids)
    for _ in range(20):
        ran = commands(shard)
        share = shard.store.rerank(100)
        assert commands(shard) - ran <= 1_200 + 10 * share.moved
    assert not share.more
    assert len(drained(shard)) == 400


def commands(shard: Shard) -> int:
    """How many the server has run for scripts and clients since it began."""
    return sum(int(entry["calls"]) for entry in shard.client.info("commandstats").values())


def test_a_pool_that_never_changed_pays_no_command_for_it(shard: Shard) -> None:
    """What a call needs to know stands in what it reads anyway."""
    shard.add(*some(shard))
    with shard.client.monitor() as monitor:
        shard.lease(3)
        shard.client.echo("enough")
        seen = []
        for event in monitor.listen():
            if event["command"].startswith("ECHO"):
                break
            seen.append(event["command"])
    assert not any("}:~" in command for command in seen)
    assert sum(command.startswith("HMGET") and " moved" in command for command in seen) == 1
    assert not any(b"gn" in shard.client.hgetall(key) for key in shard.client.scan_iter(f"{shard.keys.prefix}run:*"))


# -- scheduled dispatch --------------------------------------------------------------------------------------------


def led(shard: Shard, policy: str, version: int) -> Term:
    change(shard, policy, version, dispatch="scheduled")
    return shard.store.lead_acquire("me", f"nonce{version}", 60_000)


def test_where_only_a_leader_can_rank_the_jobs_go_to_ingress(shard: Shard) -> None:
    ids = shard.add(*some(shard, 4))
    shard.lease(1, begin=0)
    shard.now_ms += LEASE_MS
    shard.store.partition_recover()  # one that has a hash
    term = led(shard, "drr", 2)
    shard.store.cancel(ids[3:])
    moved_over(shard)
    assert {state(shard, job_id) for job_id in ids[:3]} == {"ingress"}
    entries = shard.store.read_ingress("me")
    assert [entry.id for entry in sorted(entries, key=lambda entry: entry.seq)] == ids[:3]
    assert shard.store.verify() == []
    shard.store.admit(term, [(entry.entry, entry.id, float(entry.seq)) for entry in entries], order=shard.order)
    assert shard.store.verify() == []


def test_the_order_of_a_leader_moves_over_to_one_of_the_store(shard: Shard) -> None:
    term = led(shard, "lottery", 1)
    ids = shard.add(*some(shard, 6))
    shard.admit(term)
    change(shard, "fifo")
    assert shard.store.verify() == []
    assert drained(shard) == ids


@pytest.mark.parametrize("policy", ["fifo", "wfq"])
def test_a_leader_dispatches_what_has_come_over_by_its_own_calls(shard: Shard, policy: str) -> None:
    """And workers are not asked to call again: they cannot lease what they move."""
    ids = shard.add(*(shard.job(f"t{index % 5}") for index in range(100)))
    term = led(shard, policy, 2)
    assert "wake:leader" in shard.snapshot()
    answer = shard.store.cycle("w", 1, want=4, begin=0, lease_ms=LEASE_MS)
    assert not answer.jobs
    assert not answer.more
    taken = 0
    while taken < 100:
        found = shard.store.dispatch(term, 30, 1_000, order=shard.order).jobs
        assert found == min(30, 100 - taken)
        taken += found
    assert sorted(drained(shard)) == sorted(ids)


def test_what_was_dispatched_before_a_change_goes_back_into_the_new_order(shard: Shard) -> None:
    term = led(shard, "tiered", 1)
    ids = shard.add(*some(shard, 6))
    shard.dispatch(term, window=2)
    change(shard, "wfq", dispatch="scheduled")
    before = shard.snapshot().get("~policy", {})
    shard.now_ms += 31_000
    shard.store.promote_due()
    assert "ready" not in shard.snapshot()
    assert sum(len(value) for key, value in shard.snapshot().items() if key.startswith("~q:")) == 2
    assert before.get(b"V", b"0") == shard.snapshot().get("~policy", {}).get(b"V", b"0")
    change(shard, "wfq", 3)
    assert sorted(drained(shard)) == sorted(ids)


@pytest.mark.parametrize("how", ["requeue", "recover", "ready_ttl", "pause", "paused at the lease"])
def test_what_comes_back_into_an_order_that_only_a_leader_knows_is_ranked_by_it(shard: Shard, how: str) -> None:
    """It was taken under another policy: whatever rank the store gave it would be one of nobody's order."""
    term = led(shard, "tiered", 1)
    first, *others = shard.add(*(shard.job(task=f"t{number}") for number in range(4)))
    shard.dispatch(term, window=1)
    leased = shard.lease(1) if how in ("requeue", "recover") else []
    change(shard, "drr", dispatch="scheduled")
    moved_over(shard)
    shard.admit(term, rank=lambda entry: 1e12 + entry.seq)
    if how == "requeue":
        shard.store.partition_requeue([Returned(id=leased[0].id, attempts=1)])
    elif how == "pause":
        shard.store.configure(3, scopes=[ScopeLimits(tenant="acme", paused=True)])
    elif how == "paused at the lease":
        shard.client.hset(shard.keys["limits"], "t:acme", "1||1||")
        shard.lease()
        shard.client.hdel(shard.keys["limits"], "t:acme")
    else:
        shard.now_ms += 31_000
        shard.store.partition_recover()
        shard.store.promote_due()
    found = shard.reads.job(first)
    assert found is not None
    assert found.state == "ingress"
    assert "ready" not in shard.snapshot()
    assert (b"i", 0.0) in shard.snapshot()["wake:leader"]
    (entry,) = shard.store.read_ingress(term.nonce)
    assert (entry.id, entry.seq, entry.tenant) == (first, 1, "acme")
    if how == "pause":
        shard.store.configure(4, scopes=[ScopeLimits(tenant="acme", clear=True)])
    shard.admit(term, rank=lambda entry: 1e12 + entry.seq)
    queue = shard.snapshot()["~q:acme|main"]
    assert [(member[12:].decode(), rank) for member, rank in queue] == [
        (job_id, 1e12 + number) for number, job_id in enumerate((first, *others), 1)
    ]


def test_what_comes_back_into_the_order_that_it_left_waits_for_no_leader(shard: Shard) -> None:
    term = led(shard, "drr", 1)
    ids = shard.add(*(shard.job() for _ in range(3)))
    shard.admit(term, rank=lambda entry: 100.0 + entry.seq)
    shard.store.dispatch(term, 1, 1, picks=[("acme", "main")], order=1)
    (job,) = shard.lease()
    shard.store.partition_requeue([Returned(id=job.id, attempts=1)])
    assert [(member[12:].decode(), rank) for member, rank in shard.snapshot()["q:acme|main"]] == [
        (job_id, 100.0 + number) for number, job_id in enumerate(ids, 1)
    ]
