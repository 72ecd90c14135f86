"""Groups of dead letters: those that died of the same stand together in both indices until the last of them is gone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from queueapp.store.records import Returned
from tests.lua.harness import LEASE_MS, Shard, completed, failed

ONE, TWO = "0123456789ab", "fedcba987654"
KEEP: dict[str, Any] = {"result_ttl_ms": 10**9, "result_max": 10**6, "dead_ttl_ms": 10**9, "dead_max": 10**6}


def kill(shard: Shard, number: int = 1, *, group: str = ONE, tenant: str = "acme", **options: Any) -> list[str]:
    """Dead letters of one group, each a millisecond after the other."""
    ids = shard.add(*(shard.job(tenant, **options) for _ in range(number)))
    for job in shard.lease(number):
        assert shard.store.fail([failed(job, fingerprint=group)]) == ["dead"]
        shard.now_ms += 1
    return ids


def groups(shard: Shard) -> dict[str, int]:
    """Group → score in `deadgroups`."""
    return {name.decode(): int(score) for name, score in shard.snapshot().get("deadgroups", [])}


def members(shard: Shard, group: str) -> list[str]:
    return [member.decode() for member, _ in shard.snapshot().get(f"deadgroup:{group}", [])]


def of_task_and_reason(reason: str, task_number: int = 1) -> str:
    return hashlib.sha1(f"{task_number}|{reason}".encode()).hexdigest()[:12]


def test_letters_of_one_error_stand_together_by_time_of_death(shard: Shard) -> None:
    first_at = shard.now_ms
    ids = kill(shard, 3)
    (other,) = kill(shard, group=TWO, tenant="zeta")
    assert members(shard, ONE) == ids
    assert members(shard, TWO) == [other]
    assert groups(shard) == {ONE: first_at + 2, TWO: first_at + 3}
    records = shard.reads.jobs([*ids, other])
    assert [record and record.group for record in records] == [ONE, ONE, ONE, TWO]


def test_a_cycle_brings_the_group_too(shard: Shard) -> None:
    shard.add(shard.job())
    (job,) = shard.lease()
    shard.store.cycle("w1", 2, want=0, begin=0, lease_ms=LEASE_MS, finished=[failed(job, fingerprint=TWO)])
    assert members(shard, TWO) == [job.id]


def lose_it(shard: Shard) -> str:
    (job_id,) = shard.add(shard.job(max_crashes=1))
    shard.lease()
    shard.now_ms += LEASE_MS
    assert shard.store.partition_recover().dead == 1
    return job_id


def know_it_not(shard: Shard) -> str:
    (job_id,) = shard.add(shard.job())
    (job,) = shard.lease()
    returned = Returned(id=job_id, attempts=job.attempts, unknown_task=True, grace_ms=0)
    assert shard.store.partition_requeue([returned]) == ["dead"]
    return job_id


def set_aside(shard: Shard) -> str:
    (job_id,) = shard.add(shard.job())
    assert shard.store.move_to_dlq([job_id], "by_hand") == ["moved"]
    return job_id


def fail_without(shard: Shard) -> str:
    (job_id,) = shard.add(shard.job())
    assert shard.store.fail([failed(shard.lease()[0], reason="timeout")]) == ["dead"]
    return job_id


@pytest.mark.parametrize(
    ("die", "reason"),
    [(lose_it, "worker_lost"), (know_it_not, "unknown_task"), (set_aside, "by_hand"), (fail_without, "timeout")],
)
def test_other_deaths_are_grouped_by_task_and_reason(shard: Shard, die: Callable[[Shard], str], reason: str) -> None:
    ids = [die(shard), die(shard)]
    (another,) = shard.add(shard.job(task="shop.tasks.other"))
    shard.store.move_to_dlq([another], reason)
    assert members(shard, of_task_and_reason(reason)) == ids
    assert members(shard, of_task_and_reason(reason, 2)) == [another]


@pytest.mark.parametrize(
    "group", ["", "0123456789a", "0123456789abc", "0123456789AB", "x:y|z\n\0abcdef", "../../../../"]
)
def test_what_is_no_fingerprint_is_not_taken_for_one(shard: Shard, group: str) -> None:
    kill(shard, group=group)
    assert list(groups(shard)) == [of_task_and_reason("error")]


@pytest.mark.parametrize("verb", ["retry_from_dlq", "discard"])
def test_who_leaves_the_dead_letters_leaves_the_group(shard: Shard, verb: str) -> None:
    first_at = shard.now_ms
    one, two, three = kill(shard, 3)
    act = getattr(shard.store, verb)
    act([three, two])
    assert act([three]) == ["already"]
    assert members(shard, ONE) == [one]
    assert groups(shard) == {ONE: first_at}, "the newest that is left"
    act([one])
    assert not {"deadgroups", f"deadgroup:{ONE}"} & shard.snapshot().keys()
    assert b"g" not in shard.snapshot()[f"run:{one}"]


def test_a_letter_that_dies_again_of_something_else_changes_its_group(shard: Shard) -> None:
    (job_id,) = kill(shard)
    shard.store.retry_from_dlq([job_id])
    (job,) = shard.lease()
    shard.store.fail([failed(job, fingerprint=TWO)])
    assert list(groups(shard)) == [TWO]
    assert members(shard, TWO) == [job_id]


def test_retention_takes_members_and_then_the_group(shard: Shard) -> None:
    kill(shard, 2)
    shard.now_ms += 100_000
    (late,) = kill(shard)
    shard.now_ms += 50_000
    shard.store.trim(**{**KEEP, "dead_ttl_ms": 100_000})
    assert members(shard, ONE) == [late]
    shard.now_ms += 100_000
    shard.store.trim(**{**KEEP, "dead_ttl_ms": 100_000})
    assert not {"deadgroups", f"deadgroup:{ONE}"} & shard.snapshot().keys()


def test_retention_by_number_leaves_the_newest_of_a_group(shard: Shard) -> None:
    ids = kill(shard, 6)
    shard.now_ms += 60_000
    shard.store.trim(**{**KEEP, "dead_max": 2})
    assert members(shard, ONE) == ids[4:]
    assert list(groups(shard)) == [ONE]


def test_only_who_holds_the_lease_can_put_a_job_into_a_group(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job(max_crashes=9))
    (lost,) = shard.lease()
    shard.now_ms += LEASE_MS
    shard.store.partition_recover()
    (job,) = shard.lease(1, "w2")
    assert shard.store.fail([failed(lost, fingerprint=ONE)]) == ["stale"]
    assert shard.store.complete([completed(job)]) == ["done"]
    assert shard.store.fail([failed(job, fingerprint=ONE)]) == ["done"]
    assert "deadgroups" not in shard.snapshot()
    assert b"g" not in shard.snapshot()[f"run:{job_id}"]


def test_a_retry_that_is_granted_makes_no_group(shard: Shard) -> None:
    shard.add(shard.job(max_attempts=2))
    assert shard.store.fail([failed(shard.lease()[0], retry_ms=10, fingerprint=ONE)]) == ["retry"]
    assert "deadgroups" not in shard.snapshot()


def test_groups_are_read_by_page_the_newest_death_first(shard: Shard) -> None:
    first_at = shard.now_ms
    names = [f"{number:012x}" for number in range(5)]
    ids = {name: kill(shard, 2, group=name) for name in names}
    entries, total = shard.reads.dead_groups(offset=1, count=2)
    assert total == 5
    assert [entry.group for entry in entries] == [names[3], names[2]]
    assert (entries[0].size, entries[0].newest) == (2, ids[names[3]][1])
    assert (entries[0].first_ms, entries[0].last_ms) == (first_at + 6, first_at + 7)
    assert shard.reads.dead_groups(offset=5, count=2) == ([], 5)


@pytest.mark.dirty_store
@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (lambda shard: shard.client.zrem(shard.keys["deadgroups"], ONE), f"deadgroups lacks {ONE}"),
        (lambda shard: shard.client.zadd(shard.keys["deadgroups"], {ONE: 5}), f"deadgroups has {ONE} at 5"),
        (lambda shard: shard.client.delete(shard.keys[f"deadgroup:{ONE}"]), f"deadgroup:{ONE} lacks "),
        (lambda shard: shard.client.zadd(shard.keys[f"deadgroup:{TWO}"], {"x": 5}), f"deadgroup:{TWO} holds x wrongly"),
    ],
)
def test_verify_sees_a_group_that_is_wrong(shard: Shard, damage: Callable[[Shard], None], finding: str) -> None:
    kill(shard, 2)
    damage(shard)
    assert [text for text in shard.store.verify() if finding in text]
