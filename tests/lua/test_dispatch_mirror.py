"""A pool whose policy the store does not know: what the leader is told of lanes, ranks and true costs, so that its copy
of the walk holds.

What the leader does with it is tested with the leader (tests/model/test_scheduled_parity.py).
"""

from __future__ import annotations

import pytest

from queueapp.errors import Fenced, OrderChanged, StoreError
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.leader_records import Correction, MirrorLane
from queueapp.store.records import Returned
from tests.lua.harness import Shard, commands, completed, failed
from tests.lua.keyed import keyed
from tests.lua.mirroring import POLICY, lead, limits, names, outcomes, pick


def test_admission_takes_the_ranks_of_the_leader_and_tells_what_entered(shard: Shard) -> None:
    term = lead(shard)
    ids = shard.add(shard.job("b", cost=3), shard.job("a"), shard.job("a", lane="mail"))
    answer = shard.admit(term, rank=lambda entry: 0.5 if entry.lane == "mail" else 10.0 - entry.seq)
    assert names(answer.entered) == [("b|main", True), ("b|", True), ("a|main", True), ("a|", True), ("a|mail", True)]
    by_name = {(lane.tenant, lane.lane): lane for lane in answer.entered}
    assert by_name["b", "main"] == MirrorLane(
        tenant="b", lane="main", runs=True, rank=9.0, seq=1, cost=3.0, tenant_weight=1.0, lane_weight=1.0
    )
    assert (by_name["a", "main"].rank, by_name["a", "main"].cost) == (8.0, 50.0)
    assert [job_id for _, _, job_id in shard.store.peek(5)] == [ids[2], ids[1], ids[0]]


def test_what_a_leader_did_for_the_order_before_is_refused_whole(shard: Shard) -> None:
    """Another policy came and went: the name is the same again, and nothing that it was told holds any more."""
    term = lead(shard)
    shard.add(shard.job("a"), shard.job("b"))
    order = shard.reads.in_force()[1]
    shard.admit(term)
    shard.add(shard.job("c"))
    entries = [(entry.entry, entry.id, 1.0) for entry in shard.store.read_ingress(term.nonce)]
    for policy in ("fifo", POLICY):
        shard.versions += 1
        shard.store.configure(shard.versions, pool=PoolConf(policy=policy, dispatch="scheduled"))
        while shard.store.rerank().more:
            pass
    before = shard.snapshot()
    with pytest.raises(OrderChanged):
        shard.store.admit(term, entries, order=order)
    with pytest.raises(OrderChanged):
        shard.store.dispatch(term, 10, 10, [("a", "main")], order=order)
    with pytest.raises(OrderChanged):
        shard.store.flush_policy(term, 9, b"{}", order=order)
    assert shard.snapshot() == before
    newer = shard.reads.in_force()[1]
    assert newer == order + 2
    assert shard.store.admit(term, entries, order=newer).admitted == 1
    assert shard.store.dispatch(term, 10, 10, [("c", "main")], order=newer).jobs == 1
    assert shard.store.flush_policy(term, 9, b"{}", order=newer)


def test_a_leader_that_lets_the_store_choose_is_refused_where_the_store_cannot(shard: Shard) -> None:
    term = lead(shard)
    shard.add(shard.job("a"), shard.job("b"))
    entries = [(entry.entry, entry.id, None) for entry in shard.store.read_ingress(term.nonce)]
    before = shard.snapshot()
    with pytest.raises(OrderChanged):
        shard.store.admit(term, entries)
    with pytest.raises(OrderChanged):
        shard.store.dispatch(term, 10, 10)
    with pytest.raises(OrderChanged):
        shard.store.flush_policy(term, 9, b"{}")
    assert shard.snapshot() == before


def test_a_change_that_leaves_the_order_keeps_its_number(shard: Shard) -> None:
    lead(shard)
    order = shard.reads.in_force()[1]
    shard.versions += 1
    shard.store.configure(shard.versions, pool=PoolConf(policy=POLICY, dispatch="scheduled", max_in_flight=3))
    assert shard.reads.in_force()[1] == order


def test_equal_ranks_go_by_submission(shard: Shard) -> None:
    term = lead(shard)
    ids = shard.add(*(shard.job(tenant) for tenant in "cab"))
    shard.admit(term, rank=lambda _: 1.0)
    assert [job_id for _, _, job_id in shard.store.peek(5)] == ids


def test_what_changed_is_told_once(shard: Shard) -> None:
    term = lead(shard)
    shard.add(shard.job("a"))
    assert names(shard.admit(term).entered) == [("a|main", True), ("a|", True)]
    answer = shard.store.dispatch(term, 0, 100, order=shard.order)
    assert (answer.entered, answer.corrected) == ([], [])


def test_another_head_a_pause_and_an_end_are_told(shard: Shard) -> None:
    term = lead(shard)
    [first] = shard.add(shard.job("a"))
    shard.admit(term, rank=lambda _: 5.0)
    shard.add(shard.job("a"))
    [changed] = shard.admit(term, rank=lambda _: 1.0).entered
    assert (changed.lane, changed.rank, changed.seq) == ("main", 1.0, 2)
    limits(shard, ScopeLimits(tenant="a", paused=True))
    assert ("a|", False) in names(shard.store.dispatch(term, 0, 100, order=shard.order).entered)
    limits(shard, ScopeLimits(tenant="a", weight=4))
    [back] = [lane for lane in shard.store.dispatch(term, 0, 100, order=shard.order).entered if not lane.lane]
    assert (back.runs, back.tenant_weight) == (True, 4.0)
    shard.store.cancel([job_id for _, _, job_id in shard.store.peek(5)])
    assert set(names(shard.store.dispatch(term, 0, 100, order=shard.order).entered)) == {
        ("a|main", False),
        ("a|", False),
    }
    assert first


def test_changes_are_told_in_their_order(shard: Shard) -> None:
    term = lead(shard)
    a, b = (shard.add(*(shard.job(tenant) for _ in range(4))) for tenant in "ab")
    shard.admit(term)
    for job_id in (a[0], b[0], a[1]):  # a second change of its head leaves a lane where it is
        shard.store.cancel([job_id])
    assert names(shard.store.dispatch(term, 0, 100, order=shard.order).entered) == [("a|main", True), ("b|main", True)]
    shard.store.cancel([a[2]])
    shard.store.cancel([b[1]])
    limits(shard, ScopeLimits(tenant="a", lane="main", paused=True))
    assert names(shard.store.dispatch(term, 0, 100, order=shard.order).entered) == [
        ("b|main", True),
        ("a|main", False),
        ("a|", False),
    ]


def test_a_slot_given_back_is_told(shard: Shard) -> None:
    term = lead(shard)
    limits(shard, ScopeLimits(tenant="a", max_in_flight=1))
    shard.add(shard.job("a"), shard.job("a"))
    shard.admit(term)
    pick(shard, term, "a")
    [leased] = shard.lease()
    shard.store.complete([completed(leased)])
    assert names(shard.store.dispatch(term, 0, 100, order=shard.order).entered) == [("a|", True)]


def test_the_wake_of_a_key_during_a_dispatch_is_told(shard: Shard) -> None:
    term = lead(shard)
    shard.add(keyed(shard, "k", tenant="a"), keyed(shard, "k", tenant="b"))
    shard.admit(term)
    answer = pick(shard, term, "a", "b")
    assert outcomes(answer) == [("a", "taken"), ("b", "blocked")]
    [leased] = shard.lease()
    shard.store.complete([completed(leased)])
    assert ("b|main", True) in names(shard.store.dispatch(term, 0, 100, order=shard.order).entered)
    assert outcomes(pick(shard, term, "b")) == [("b", "taken")]


def test_true_costs_are_told_by_lane(shard: Shard) -> None:
    term = lead(shard)
    shard.add(*(shard.job("a") for _ in range(2)), shard.job("b", cost=9))
    shard.admit(term)
    pick(shard, term, "a", "a", "b")
    one, two, three = shard.lease(3)
    shard.now_ms += 80
    shard.store.complete([completed(one, run_ms=80), completed(two, run_ms=30)])
    shard.store.partition_requeue([Returned(id=three.id, attempts=1)])
    answer = shard.store.dispatch(term, 0, 100, order=shard.order)
    assert set(answer.corrected) == {
        Correction(tenant="a", lane="main", difference=30.0 - 20.0),
        Correction(tenant="b", lane="main", difference=-9.0),
    }
    assert shard.store.dispatch(term, 0, 100, order=shard.order).corrected == []


@pytest.mark.parametrize("before", ["ring", "tiered", "fifo", "lottery"])
def test_what_another_policy_charged_is_not_told(shard: Shard, before: str) -> None:
    """The leader's copy of the walk never had it. Nothing waits, so that no new generation begins."""
    term = shard.schedule(policy=before)
    shard.add(shard.job("a"))
    shard.admit(term, rank=(lambda _: 1.0) if before == "lottery" else (lambda _: None))
    pick(shard, term, *(["a"] if before == "lottery" else []))
    [job] = shard.lease()
    term = lead(shard)
    shard.now_ms += 4_000
    shard.store.complete([completed(job, run_ms=4_000)])
    assert shard.store.dispatch(term, 0, 100, order=shard.order).corrected == []
    assert "corrections" not in shard.snapshot()


def test_what_changed_is_read_for_many_lanes_at_once(shard: Shard) -> None:
    term = lead(shard)
    shard.add(*(shard.job(f"t{number % 5}", lane=f"l{number}") for number in range(100)))
    ran = commands(shard)
    answer = shard.admit(term, rank=lambda entry: float(entry.seq))
    admitted = commands(shard) - ran
    limits(shard, *(ScopeLimits(tenant=f"t{number % 5}", lane=f"l{number}", weight=2) for number in range(100)))
    assert len(answer.entered) == 105
    ran = commands(shard)
    told = shard.store.dispatch(term, 0, 100, order=shard.order).entered
    assert {(lane.tenant, lane.lane, lane.lane_weight) for lane in told} == {
        (f"t{number % 5}", f"l{number}", 2.0) for number in range(100)
    }
    assert all(lane.runs and lane.rank == lane.seq and lane.cost == 50.0 for lane in told)
    assert commands(shard) - ran < 100 * 2 + 50  # the first job of each, and its row
    assert admitted < 100 * 20


@pytest.mark.parametrize("rank", [float("nan"), float("inf"), float("-inf")])
def test_a_rank_that_is_no_place_is_refused_before_anything_is_written(shard: Shard, rank: float) -> None:
    term = lead(shard)
    shard.add(shard.job("a"), shard.job("b"))
    entries = shard.store.read_ingress(term.nonce)
    before = shard.snapshot()
    ranks = [(entry.entry, entry.id, rank if entry.tenant == "b" else 1.0) for entry in entries]
    with pytest.raises(StoreError, match="finite"):
        shard.store.admit(term, ranks, order=shard.order)
    assert shard.snapshot() == before


def test_a_job_keeps_the_rank_it_was_given(shard: Shard) -> None:
    term = lead(shard)
    [job_id] = shard.add(shard.job("a", max_attempts=3))
    shard.admit(term, rank=lambda _: 7.5)
    pick(shard, term, "a")
    [leased] = shard.lease()
    shard.store.partition_requeue([Returned(id=job_id, attempts=leased.attempts)])
    _, [lane] = shard.store.mirror()
    assert lane.rank == 7.5
    pick(shard, term, "a")
    shard.store.fail([failed(shard.lease()[0], retry_ms=1)])
    shard.now_ms += 1
    shard.store.promote_due()
    [entry] = shard.store.read_ingress(term.nonce)
    assert entry.seq == 2
    shard.admit(term, rank=lambda _: 8.5)
    _, [lane] = shard.store.mirror()
    assert lane.rank == 8.5


def test_the_mirror_is_read_in_pages_while_the_walk_changes(shard: Shard) -> None:
    term = lead(shard)
    lanes = {(f"t{number}", "main") for number in range(200)} | {("wide", f"lane{number}") for number in range(600)}
    shard.add(*(shard.job(tenant, lane=lane) for tenant, lane in sorted(lanes)))
    for _ in range(4):
        shard.admit(term)
    cursor, seen, pages = "0", [], 0
    while True:
        cursor, page = shard.store.mirror(cursor)
        assert len(page) <= 400
        seen += page
        pages += 1
        if cursor == "0":
            break
        shard.add(shard.job(f"new{pages}"))
        shard.admit(term)
    assert pages > 2
    assert {(lane.tenant, lane.lane) for lane in seen} >= lanes
    assert {lane.runs for lane in seen} == {True}


def test_a_new_leader_hears_what_the_old_one_was_not_told(shard: Shard) -> None:
    """The old leader died between an admission and its dispatch; the mirror has all of it."""
    old = lead(shard)
    shard.add(shard.job("a"))
    shard.admit(old)
    new = shard.term()
    with pytest.raises(Fenced):
        pick(shard, old, "a")
    assert names(shard.store.mirror()[1]) == [("a|main", True)]
    assert outcomes(pick(shard, new, "a")) == [("a", "taken")]
