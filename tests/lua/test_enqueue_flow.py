"""enqueue_flow: a tree comes as a whole or not at all, once, and its parents wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.family import rows
from queueapp.store.family_records import Node
from queueapp.store.trees import pages
from tests.lua.families import complete, kin, lease, node, plant, record, state
from tests.lua.harness import Shard, completed


def test_parents_wait_and_leaves_may_run(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent", "continue"])
    assert [state(shard, job) for job in [tree.parent, *tree.children]] == ["waiting", "pending", "pending"]
    assert {job.id for job in shard.lease(10)} == set(tree.children), "the parent is not to be had"


def test_a_tree_of_several_levels_is_released_from_below(shard: Shard) -> None:
    root = node(shard, waits=True)
    middle = node(shard, root.job.id, waits=True)
    leaf = node(shard, middle.job.id)
    shard.store.enqueue_flow([root, middle, leaf])
    ids = [each.job.id for each in (root, middle, leaf)]
    assert [state(shard, job) for job in ids] == ["waiting", "waiting", "pending"]
    complete(shard, ids[2])
    assert [state(shard, job) for job in ids] == ["waiting", "pending", "completed"]
    complete(shard, ids[1])
    assert [state(shard, job) for job in ids] == ["pending", "completed", "completed"]
    complete(shard, ids[0])


def test_a_repeat_changes_nothing_and_answers_as_before(shard: Shard) -> None:
    tree = kin(shard, ["fail_parent"] * 3)
    first = shard.store.enqueue_flow(tree.nodes)
    complete(shard, tree.children[0])
    before = shard.snapshot()
    assert shard.store.enqueue_flow(tree.nodes) == first
    assert shard.snapshot() == before


def test_other_arguments_under_the_same_id_are_refused(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"])
    changed = replace(tree.nodes[1], job=replace(tree.nodes[1].job, fingerprint="beef"))
    before = shard.snapshot()
    answer = shard.store.enqueue_flow([tree.nodes[0], changed])
    assert (answer.outcome, answer.id) == ("conflict", tree.children[0])
    assert shard.snapshot() == before


def test_what_the_front_door_refuses_of_one_job_refuses_the_tree_without_a_trace(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="slow", rate=Rate(rate=1, period_ms=10_000, burst=1))])
    root = node(shard, waits=True)
    slow = [node(shard, root.job.id, tenant="slow") for _ in range(2)]
    before = shard.snapshot()
    answer = shard.store.enqueue_flow([root, *slow])
    assert (answer.outcome, answer.id) == ("throttled", slow[1].job.id)
    assert answer.wait_ms > 0
    assert shard.snapshot() == before
    assert shard.store.enqueue_flow([root, slow[0]]).outcome == "enqueued", "nothing was charged for it"


def test_there_is_no_room_for_a_part_of_a_tree(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", backlog_limit=2)])
    tree = kin(shard, ["fail_parent"] * 3)
    before = shard.snapshot()
    assert shard.store.enqueue_flow(tree.nodes).outcome == "backlog_full"
    assert shard.snapshot() == before


def test_jobs_that_park_do_so_in_a_tree(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=1_000, burst=1))])
    root = node(shard, waits=True, parks=True)
    children = [node(shard, root.job.id, parks=True) for _ in range(2)]
    assert shard.store.enqueue_flow([root, *children]).outcome == "enqueued"
    assert [state(shard, each.job.id) for each in (root, *children)] == ["waiting", "backlog", "backlog"]


def test_an_idempotency_key_of_the_root_stands_for_the_tree(shard: Shard) -> None:
    def tree() -> list[Node]:
        return kin(shard, ["fail_parent"], idempotency="key").nodes

    first = tree()
    assert shard.store.enqueue_flow(first).outcome == "enqueued"
    again = shard.store.enqueue_flow(tree())
    assert (again.outcome, again.id) == ("exists", first[0].job.id)
    assert len(shard.lease(10)) == 1, "nothing of the second tree is there"


def test_a_parent_waits_for_its_own_moment_after_its_children(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"], delay_ms=5_000)
    complete(shard, *tree.children)
    assert state(shard, tree.parent) == "scheduled"
    shard.now_ms += 5_000
    shard.store.promote_due()
    complete(shard, tree.parent)


def test_children_may_be_due_later(shard: Shard) -> None:
    root = node(shard, waits=True)
    later = node(shard, root.job.id, delay_ms=5_000)
    shard.store.enqueue_flow([root, later])
    assert state(shard, later.job.id) == "scheduled"


def test_a_waiting_parent_counts_as_no_waiting_job(shard: Shard) -> None:
    """It asks for nothing yet: neither for room nor for a turn."""
    plant(shard, ["fail_parent"])
    assert shard.client.hget(shard.keys["counts"], "w") == b"1"


@pytest.mark.parametrize("policy", ["tiered", "fifo", "wfq", "priority", "ring", "aging", "edf"])
def test_a_released_parent_runs_under_every_policy(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    tree = plant(shard, ["fail_parent"] * 2)
    complete(shard, *tree.children)
    complete(shard, tree.parent)


def test_a_released_parent_goes_to_ingress_where_a_leader_dispatches(shard: Shard) -> None:
    term = shard.schedule()
    tree = plant(shard, ["fail_parent"])
    shard.dispatch(term)
    complete(shard, *tree.children)
    assert state(shard, tree.parent) == "ingress"
    shard.dispatch(term)
    complete(shard, tree.parent)


def test_a_parent_with_a_concurrency_key_takes_it_when_it_runs(shard: Shard) -> None:
    from tests.lua.keyed import keyed

    key: dict[str, Any] = {"keys": keyed(shard, "k", limit=1).keys}
    tree = plant(shard, ["fail_parent"], **key)
    assert len(shard.lease(5)) == 1
    assert tree.parent


def test_the_wait_for_children_is_no_wait_in_line(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"])
    [leased] = lease(shard, *tree.children)
    shard.now_ms += 7_000
    shard.store.complete([completed(leased)])
    shard.now_ms += 300
    [parent] = lease(shard, tree.parent)
    assert (parent.waits.backoff_ms, parent.waits.line_ms) == (7_000, 300)


# -- pages -----------------------------------------------------------------------------------------------------------


def wide(shard: Shard, number: int) -> list[Node]:
    root = node(shard, waits=True)
    return [root, *(node(shard, root.job.id, position=position) for position in range(number))]


def send(shard: Shard, tree: list[Node], *, most: int, only: int | None = None) -> None:
    """Sends the pages of a tree, or the first of them."""
    from queueapp.store.family import planting

    for number, page in enumerate(pages(tree, most=most)[:only]):
        answer = shard.store._run(planting(page, "more" if number else "new", shard.now_ms))
        assert answer.outcome == "enqueued"


def test_no_parent_runs_before_its_last_page(shard: Shard) -> None:
    tree = wide(shard, 5)
    root, children = tree[0].job.id, [each.job.id for each in tree[1:]]
    send(shard, tree, most=3, only=1)
    complete(shard, *children[:2])
    assert state(shard, root) == "waiting", "all that are there have ended, but not all are there"
    send(shard, tree, most=3)
    complete(shard, *children[2:])
    assert state(shard, root) == "pending"


def test_the_last_page_may_come_when_all_before_have_ended(shard: Shard) -> None:
    tree = wide(shard, 3)
    send(shard, tree, most=2, only=1)
    complete(shard, tree[1].job.id)
    send(shard, tree, most=2)
    complete(shard, *(each.job.id for each in tree[2:]))
    complete(shard, tree[0].job.id)


def test_every_page_may_come_twice(shard: Shard) -> None:
    tree = wide(shard, 7)
    send(shard, tree, most=3)
    before = shard.snapshot()
    send(shard, tree, most=3)
    assert shard.snapshot() == before


def test_a_tree_whose_caller_does_not_come_back_fails_and_takes_its_children_along(shard: Shard) -> None:
    tree = wide(shard, 5)
    root, children = tree[0].job.id, [each.job.id for each in tree[1:]]
    send(shard, tree, most=3, only=1)
    shard.now_ms += 600_000
    shard.store.promote_due()
    assert (state(shard, root), record(shard, root).reason) == ("dead", "incomplete")
    assert [state(shard, child) for child in children[:2]] == ["cancelled"] * 2
    send(shard, tree, most=3)  # too late
    assert shard.reads.job(children[4]) is None


def test_a_page_of_a_tree_that_has_failed_meanwhile_is_left_out(shard: Shard) -> None:
    tree = wide(shard, 5)
    send(shard, tree, most=3, only=1)
    shard.store.move_to_dlq([tree[1].job.id], "why")
    assert state(shard, tree[0].job.id) == "dead"
    send(shard, tree, most=3)
    assert shard.reads.job(tree[5].job.id) is None


def test_later_pages_are_not_refused_by_the_front_door(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=3, period_ms=1_000, burst=3))])
    tree = wide(shard, 5)
    send(shard, tree, most=3)
    assert [state(shard, each.job.id) for each in tree[3:]] == ["backlog"] * 3


def test_a_large_tree_is_bounded_in_each_call(shard: Shard) -> None:
    tree = wide(shard, 1_000)
    assert shard.store.enqueue_flow(tree).outcome == "enqueued"
    assert max(len(rows(page)["nodes"]) for page in pages(tree)) == 250
    done = 0
    while leased := shard.lease(100):
        assert state(shard, tree[0].job.id) == ("waiting" if done < 1_000 else "pending") or done == 1_000
        done += len(leased)
        shard.store.complete([completed(job) for job in leased])
    assert done == 1_001
