"""add_children: a job that runs gives up its attempt for children, under its lease; one that waits gets more."""

from __future__ import annotations

import pytest

from queueapp.errors import NotWaiting
from queueapp.store.family_records import Node
from tests.lua.families import complete, die, lease, node, plant, record, state
from tests.lua.harness import LEASE_MS, Shard, completed, failed


def children_of(shard: Shard, parent: str, number: int = 2) -> list[Node]:
    return [node(shard, parent, position=position, tier="continue") for position in range(number)]


def test_a_running_job_waits_for_the_children_that_it_adds(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    [leased] = shard.lease()
    children = children_of(shard, job_id)
    assert shard.store.add_children(job_id, children, attempts=1) == "done"
    assert state(shard, job_id) == "waiting"
    assert "active" not in shard.snapshot()
    complete(shard, *(child.job.id for child in children))
    [again] = lease(shard, job_id)
    assert (again.attempts, again.errors, again.crashes) == (leased.attempts + 1, 0, 0)
    assert [child.outcome for child in shard.store.children(job_id)] == ["completed"] * 2


def test_its_attempt_is_over_and_what_it_says_later_changes_nothing(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    [leased] = shard.lease()
    shard.store.add_children(job_id, children_of(shard, job_id), attempts=1)
    before = shard.snapshot()
    assert shard.store.complete([completed(leased, result=b"1")]) == ["done"]
    assert shard.store.extend_lease([(job_id, 1)], LEASE_MS) == [job_id]
    assert shard.snapshot() == before


def test_a_repeat_finds_it_done(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    shard.lease()
    children = children_of(shard, job_id)
    shard.store.add_children(job_id, children, attempts=1)
    before = shard.snapshot()
    assert shard.store.add_children(job_id, children, attempts=1) == "done"
    assert shard.snapshot() == before
    complete(shard, *(child.job.id for child in children))
    assert shard.store.add_children(job_id, children, attempts=1) == "done"
    assert state(shard, job_id) == "pending"


@pytest.mark.parametrize(("attempts", "word"), [(2, "stale"), (0, "stale")])
def test_only_the_holder_of_the_lease_is_heard(shard: Shard, attempts: int, word: str) -> None:
    [job_id] = shard.add(shard.job())
    shard.lease()
    children = children_of(shard, job_id)
    assert shard.store.add_children(job_id, children, attempts=attempts) == word
    assert shard.reads.job(children[0].job.id) is None
    assert shard.store.add_children("0" * 22, children, attempts=1) == "gone"


def test_without_children_it_runs_again_at_once(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    shard.lease()
    assert shard.store.add_children(job_id, [], attempts=1) == "done"
    assert state(shard, job_id) == "pending"
    [again] = shard.lease()
    assert again.attempts == 2


def test_one_that_was_told_to_stop_ends_instead(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    shard.lease()
    shard.store.cancel([job_id])
    children = children_of(shard, job_id)
    assert shard.store.add_children(job_id, children, attempts=1) == "cancelled"
    assert state(shard, job_id) == "cancelled"
    assert shard.reads.job(children[0].job.id) is None


def test_its_slots_are_free_while_it_waits(shard: Shard) -> None:
    from queueapp.store.configuration import PoolConf

    shard.store.configure(1, pool=PoolConf(max_in_flight=1))
    [job_id] = shard.add(shard.job())
    shard.lease()
    children = children_of(shard, job_id, 1)
    shard.store.add_children(job_id, children, attempts=1)
    complete(shard, children[0].job.id)
    complete(shard, job_id)


def test_it_may_add_children_again_and_sees_all_of_them(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    for attempt in (1, 2):
        lease(shard, job_id)
        children = children_of(shard, job_id, 1)
        shard.store.add_children(job_id, children, attempts=attempt)
        complete(shard, children[0].job.id)
    assert len(shard.store.children(job_id)) == 2


def test_a_failed_child_fails_it_as_any_parent(shard: Shard) -> None:
    [job_id] = shard.add(shard.job(max_attempts=5))
    shard.lease()
    children = children_of(shard, job_id)
    shard.store.add_children(job_id, children, attempts=1)
    die(shard, children[1].job.id)
    assert (state(shard, job_id), record(shard, job_id).failed_child) == ("dead", children[1].job.id)


def test_a_lost_worker_of_the_second_run_is_as_of_any(shard: Shard) -> None:
    [job_id] = shard.add(shard.job(max_attempts=2))
    shard.lease()
    shard.store.add_children(job_id, [], attempts=1)
    shard.lease()
    shard.now_ms += LEASE_MS
    assert shard.store.partition_recover().pending == 1
    [third] = shard.lease()
    assert (third.attempts, third.crashes) == (3, 1)
    assert shard.store.fail([failed(third)]) == ["dead"]


def test_many_children_come_in_pages_and_none_releases_it_too_early(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    shard.lease()
    children = children_of(shard, job_id, 600)
    assert shard.store.add_children(job_id, children, attempts=1) == "done"
    done = 0
    while leased := shard.lease(100):
        if [job.id for job in leased] == [job_id]:
            break
        shard.store.complete([completed(job) for job in leased])
        done += len(leased)
    assert done == 600


# -- a job that waits --------------------------------------------------------------------------------------------------


def test_a_waiting_job_gets_more_children(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"])
    more = children_of(shard, tree.parent, 1)
    assert shard.store.add_children(tree.parent, more) == "done"
    assert shard.store.add_children(tree.parent, more) == "done"
    complete(shard, *tree.children)
    assert state(shard, tree.parent) == "waiting"
    complete(shard, more[0].job.id)
    assert state(shard, tree.parent) == "pending"


def test_a_job_that_does_not_wait_gets_none(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    more = children_of(shard, job_id, 1)
    before = shard.snapshot()
    for parent in (job_id, "0" * 22):
        with pytest.raises(NotWaiting):
            shard.store.add_children(parent, more)
    assert shard.snapshot() == before


def test_a_repeat_for_a_job_that_has_gone_on_meanwhile_is_done(shard: Shard) -> None:
    tree = plant(shard, ["fail_parent"])
    more = children_of(shard, tree.parent, 1)
    shard.store.add_children(tree.parent, more)
    complete(shard, *tree.children, more[0].job.id)
    assert state(shard, tree.parent) == "pending"
    assert shard.store.add_children(tree.parent, more) == "done"
