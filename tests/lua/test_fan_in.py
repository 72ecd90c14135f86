"""Fan-in: whatever becomes of the children, their parent reaches a final state, once, and says which child decided."""

from __future__ import annotations

import itertools

import pytest

from queueapp.store.family_records import OnFailure
from tests.lua.families import (
    FAILING,
    POLICIES,
    Kin,
    cancel,
    complete,
    die,
    erase,
    kin,
    lease,
    node,
    plant,
    record,
    state,
)
from tests.lua.harness import Shard, commands, completed, failed

AFTER = {"fail_parent": "dead", "retry_parent": "dead", "continue": "pending", "ignore": "pending"}
"""On a parent with one attempt."""


@pytest.mark.parametrize("how", FAILING)
@pytest.mark.parametrize("policy", POLICIES)
def test_c109_a_parent_ends_whatever_becomes_of_its_children(shard: Shard, policy: OnFailure, how: str) -> None:
    """C109: a child fails for good and the parent waits for ever."""
    tree = plant(shard, [policy] * 3)
    first, fails, last = tree.children
    FAILING[how](shard, fails)
    if state(shard, tree.parent) == "waiting":
        assert AFTER[policy] == "pending"
        complete(shard, first, last)
    assert state(shard, tree.parent) == AFTER[policy]
    told = {child.child: child.outcome for child in shard.store.children(tree.parent)}
    assert told[fails] != "completed"
    if AFTER[policy] == "dead":
        dead = record(shard, tree.parent)
        assert (dead.reason, dead.failed_child) == ("child_failed", fails), "it says which child decided"
        [error] = [error for error in dead.errors if error.kind == "child"]
        assert fails in str(error.detail["child"])
    else:
        complete(shard, tree.parent)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("together", [1, 2, 3])
def test_the_last_end_releases_the_parent_once(shard: Shard, order: tuple[int, ...], together: int) -> None:
    tree = plant(shard, ["fail_parent"] * 3)
    leased = lease(shard, *tree.children)
    ends = [completed(leased[number]) for number in order]
    for first in range(0, 3, together):
        assert state(shard, tree.parent) == "waiting"
        shard.store.complete(ends[first : first + together])
        shard.store.complete(ends[first : first + together])  # its reply was lost
    assert state(shard, tree.parent) == "pending"
    assert [job.id for job in shard.lease(5)] == [tree.parent]


def test_a_dead_child_fails_all_above_that_fail_with_it(shard: Shard) -> None:
    levels = [node(shard, waits=True)]
    for _ in range(5):
        levels.append(node(shard, levels[-1].job.id, waits=True))
    levels.append(node(shard, levels[-1].job.id))
    shard.store.enqueue_flow(levels)
    die(shard, levels[-1].job.id)
    assert [state(shard, each.job.id) for each in levels] == ["dead"] * 7
    assert [record(shard, each.job.id).failed_child for each in levels[:-1]] == [each.job.id for each in levels[1:]]


def test_a_failure_goes_up_as_far_as_somebody_bears_it(shard: Shard) -> None:
    top = node(shard, waits=True)
    middle = node(shard, top.job.id, "continue", waits=True)
    leaf = node(shard, middle.job.id)
    shard.store.enqueue_flow([top, middle, leaf])
    die(shard, leaf.job.id)
    assert [state(shard, each.job.id) for each in (top, middle)] == ["pending", "dead"]


def test_more_levels_than_one_script_climbs_are_relayed(shard: Shard) -> None:
    levels = [node(shard, waits=True)]
    for _ in range(40):
        levels.append(node(shard, levels[-1].job.id, waits=True))
    levels.append(node(shard, levels[-1].job.id))
    shard.store.enqueue_flow(levels)
    die(shard, levels[-1].job.id)
    assert state(shard, levels[0].job.id) == "waiting"
    [note] = [note for note in shard.store.outbox() if note.kind == "ended"]
    assert note.end is not None
    shard.store.child_done([note.end])
    shard.store.relayed([note.entry])
    assert state(shard, levels[0].job.id) == "dead"


def test_retry_parent_costs_an_attempt_and_the_parent_runs_when_all_have_ended(shard: Shard) -> None:
    tree = plant(shard, ["retry_parent", "retry_parent", "continue"], max_attempts=2)
    die(shard, tree.children[0])
    cancel(shard, tree.children[1])
    assert state(shard, tree.parent) == "waiting"
    cancel(shard, tree.children[2])
    assert (state(shard, tree.parent), record(shard, tree.parent).error_count) == ("pending", 1)
    [leased] = lease(shard, tree.parent)
    assert leased.errors == 1
    assert shard.store.fail([failed(leased, retry_ms=0)]) == ["dead"], "that was its last"


def test_the_first_failure_decides(shard: Shard) -> None:
    tree = plant(shard, ["continue", "fail_parent", "fail_parent"])
    leased = lease(shard, *tree.children)
    shard.store.fail([failed(job) for job in leased])
    assert record(shard, tree.parent).failed_child == tree.children[1]
    assert record(shard, tree.parent).error_count == 0


def test_the_siblings_of_a_failed_child_go_on_and_are_told_of(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"] * 2)
    cancel(shard, tree.children[0])
    assert state(shard, tree.parent) == "dead"
    complete(shard, tree.children[1])
    assert [child.outcome for child in shard.store.children(tree.parent)] == ["cancelled", "completed"]


def test_a_child_that_is_tried_again_has_not_ended(shard: Shard) -> None:
    root = node(shard, waits=True)
    child = node(shard, root.job.id, max_attempts=2)
    shard.store.enqueue_flow([root, child])
    [leased] = lease(shard, child.job.id)
    assert shard.store.fail([failed(leased, retry_ms=100)]) == ["retry"]
    assert state(shard, root.job.id) == "waiting"
    shard.now_ms += 100
    shard.store.promote_due()
    complete(shard, child.job.id)
    assert state(shard, root.job.id) == "pending"


def test_results_reach_the_parent_whatever_the_retention_of_the_childrens_own(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"] * 2)
    first, second = lease(shard, *tree.children)
    shard.store.complete([completed(second, result=b'"two|2"'), completed(first, result=b"1")])
    shard.now_ms += 120_000
    shard.store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=10**9, dead_max=10)
    assert shard.reads.job(tree.children[0]) is None
    assert [(child.position, child.result) for child in shard.store.children(tree.parent)] == [
        (0, b"1"),
        (1, b'"two|2"'),
    ]
    complete(shard, tree.parent)
    assert shard.store.children(tree.parent) == [], "nobody will ask again"


# -- expiry, cancel, operators -----------------------------------------------------------------------------------------


def test_an_expired_child_has_ended(shard: Shard) -> None:
    root = node(shard, waits=True)
    child = node(shard, root.job.id, "continue", expires_after_ms=1_000)
    shard.store.enqueue_flow([root, child])
    shard.now_ms += 1_000
    shard.store.promote_due()
    assert [state(shard, each.job.id) for each in (root, child)] == ["pending", "expired"]


def test_a_parent_may_expire_while_it_waits(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"], expires_after_ms=1_000)
    shard.now_ms += 1_000
    assert shard.store.promote_due().expired == 1
    assert [state(shard, job) for job in (tree.parent, *tree.children)] == ["expired", "pending"]
    complete(shard, *tree.children)


def test_with_a_cancelled_parent_its_children_are_cancelled(shard: Shard) -> None:
    top = node(shard, waits=True)
    middle = kin(shard, ["continue"] * 2, above=top.job.id)
    other = node(shard, top.job.id)
    shard.store.enqueue_flow([top, *middle.nodes, other])
    [running] = lease(shard, middle.children[0])
    shard.store.cancel([top.job.id])
    ids = [top.job.id, middle.parent, middle.children[1], other.job.id]
    assert [state(shard, job) for job in ids] == ["cancelled"] * 4
    assert record(shard, running.id).cancelling_ms > 0, "what runs is told to stop"
    assert shard.store.complete([completed(running)]) == ["cancelled"]


def test_children_of_a_cancelled_parent_end_in_bounded_shares(shard: Shard) -> None:
    root = node(shard, waits=True)
    children = [node(shard, root.job.id) for _ in range(600)]
    shard.store.enqueue_flow([root, *children])
    shard.store.cancel([root.job.id])
    left = shard.client.scard(shard.keys[f"open:{root.job.id}"])
    assert left == 350
    while shard.store.promote_due().more:
        pass
    assert {state(shard, each.job.id) for each in children} == {"cancelled"}
    assert "sweeps" not in shard.snapshot()


def test_a_dead_parent_waits_again_for_those_that_have_not_ended(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"] * 2)
    die(shard, tree.children[0])
    assert shard.store.retry_from_dlq([tree.parent]) == ["retried"]
    assert state(shard, tree.parent) == "waiting"
    complete(shard, tree.children[1])
    assert state(shard, tree.parent) == "pending"


def test_a_redriven_child_is_waited_for_again(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"])
    die(shard, tree.children[0])
    shard.store.retry_from_dlq(tree.children)
    shard.store.retry_from_dlq([tree.parent])
    assert [state(shard, job) for job in (tree.parent, *tree.children)] == ["waiting", "pending"]
    complete(shard, *tree.children)
    assert [child.outcome for child in shard.store.children(tree.parent)] == ["completed"]
    complete(shard, tree.parent)


def test_what_becomes_of_a_dead_child_later_decides_nothing(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent", "continue"])
    die(shard, tree.children[0])
    shard.store.retry_from_dlq([tree.parent])
    shard.store.discard([tree.children[0]])
    assert state(shard, tree.parent) == "waiting"
    assert shard.store.children(tree.parent)[0].outcome == "discarded"


@pytest.mark.parametrize("away", [cancel, erase])
def test_children_of_a_parent_that_is_gone_end_quietly(shard: Shard, away: object) -> None:
    tree = plant(shard, ["fail_parent"] * 2)
    leased = lease(shard, *tree.children)
    away(shard, tree.parent)  # type: ignore[operator]
    assert set(shard.store.complete([completed(job) for job in leased])) <= {"done", "cancelled"}
    assert "parents" not in shard.snapshot()


def test_neither_parents_nor_children_move_to_another_pool(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"])
    assert shard.store.depart([tree.parent, *tree.children], "other.0") == ["held", "held"]


def test_an_unreadable_child_is_set_aside_and_its_parent_told(shard: Shard) -> None:
    tree = plant(shard, ["continue"])
    shard.client.set(shard.keys.job(tree.children[0]), "nonsense")
    assert shard.lease() == []
    assert state(shard, tree.parent) == "pending"
    assert shard.store.children(tree.parent)[0].outcome == "lost"
    shard.store.erase("acme", tree.children)
    shard.client.delete(shard.keys["quarantine"], shard.keys.job(tree.children[0]))


def test_trim_forgets_parents_and_children(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"] * 2)
    die(shard, tree.children[0])
    shard.store.cancel(tree.children[1:])
    shard.now_ms += 10**9
    for _ in range(3):
        shard.store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=0, dead_max=0)
    assert not [key for key in shard.snapshot() if key.split(":")[0] in ("open", "children", "parents", "job", "run")]


# -- one signal, no cost -----------------------------------------------------------------------------------------------


def test_c115_a_parent_fails_exactly_once_with_its_cause(shard: Shard) -> None:
    """C115: a parent failed by its child gives no event; here one dead letter, one count, one answer to who waits."""
    tree: Kin = plant(shard, ["fail_parent"] * 3)
    assert not shard.store.await_result(tree.parent, "web1")
    leased = lease(shard, *tree.children)
    for _ in range(2):
        shard.store.fail([failed(job) for job in leased])
    assert shard.client.hget(shard.keys["stats"], "dead") == b"4", "three children and their parent"
    assert shard.client.lrange(shard.keys["done:web1"], 0, -1) == [tree.parent.encode()]
    dead = record(shard, tree.parent)
    assert [error.kind for error in dead.errors] == ["child"]
    assert (dead.reason, dead.failed_child) == ("child_failed", tree.children[0])
    assert shard.client.zcard(shard.keys["dead"]) == 4


def test_a_job_without_a_parent_pays_no_command_for_this(shard: Shard) -> None:
    """Not one that names a key of parents and children, and as many as where there is no tree."""
    names = [f"{shard.keys.prefix}{kind}" for kind in ("parents", "open:", "children:", "waiting", "sweeps", "outbox")]

    def life() -> int:
        before = commands(shard)
        shard.add(*(shard.job() for _ in range(5)))
        leased = shard.lease(5)
        shard.store.complete([completed(job) for job in leased[:3]])
        shard.store.fail([failed(job) for job in leased[3:]])
        return commands(shard) - before

    life()
    alone = life()
    tree = plant(shard, ["fail_parent"] * 2, tier="start")  # of another tier: an order of its own is looked at
    leased = shard.lease(2, worker="w2")
    assert life() == alone
    with shard.client.monitor() as monitor:
        life()
        shard.client.echo("enough")
        for event in monitor.listen():
            if event["command"].startswith("ECHO"):
                break
            assert not any(name in event["command"] for name in names)
    shard.store.complete([completed(job) for job in leased])
    complete(shard, tree.parent)
