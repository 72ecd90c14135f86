"""A change of policy while work waits: what moves over, in which order, what ends meanwhile, and what readers see."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.errors import PolicyBusy
from queueapp.store.views import Change
from tests.lua.generations import POLICIES, change, drained, generation, in_line, moved_over, some, standing_anew, state
from tests.lua.harness import LEASE_MS, Shard
from tests.lua.keyed import keyed

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
    assert queues.lanes(["a"], of) == {"a": ["x", "y"]}
    [[sub_lane], *others] = queues.sub_lanes([("a", tier, "") for tier in of.tiers()], of)
    assert (sub_lane.partition("@")[0], others) == ("x|", [[], [], []])
    assert queues.are_parked([f"<q:a|{sub_lane}"], of) == [False]
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
