"""cut: all that waits of one tenant is cancelled when it is met, whoever meets it, until it is taken back or over."""

from __future__ import annotations

import pytest

from tests.lua.harness import Shard, failed


def states(shard: Shard, ids: list[str]) -> list[str]:
    return [str((job.outcome or job.state).value) for job in shard.reads.jobs(ids) if job is not None]


def test_what_stands_in_line_of_the_tenant_is_cancelled_instead_of_leased(shard: Shard) -> None:
    cut, other = shard.add(*(shard.job("a") for _ in range(5))), shard.add(shard.job("b"))
    assert shard.store.cut("a", shard.reads.submission(), 60_000) == 1
    later = shard.add(shard.job("a"))
    assert sorted(job.id for job in shard.lease(10)) == sorted([*other, *later])
    assert states(shard, cut) == ["cancelled"] * 5
    assert shard.snapshot()["stats"][b"cancelled"] == b"5"


def test_what_gets_a_new_place_in_line_afterwards_is_left_alone(shard: Shard) -> None:
    (dead,) = shard.add(shard.job("a"))
    shard.store.fail([failed(shard.lease()[0])])
    shard.store.cut("a", shard.reads.submission(), 60_000)
    shard.store.retry_from_dlq([dead])
    assert [job.id for job in shard.lease()] == [dead]


def test_chosen_jobs_are_cancelled_at_the_lease_and_give_back_their_slots(shard: Shard) -> None:
    term = shard.schedule()
    chosen, waits = shard.add(shard.job("a"), shard.job("a"))
    assert shard.dispatch(term, most=1).jobs == 1
    shard.store.cut("a", shard.reads.submission(), 60_000)
    assert shard.lease(5) == []
    assert states(shard, [chosen, waits]) == ["cancelled", "pending"]
    assert shard.dispatch(term).jobs == 0
    assert states(shard, [waits]) == ["cancelled"]


def test_a_cut_ends_when_it_is_taken_back_or_over(shard: Shard) -> None:
    shard.add(shard.job("a"), shard.job("b"))
    shard.store.cut("a", shard.reads.submission(), 1_000)
    shard.store.cut("b", shard.reads.submission(), 60_000)
    assert shard.store.cut("b", 0, 0) == 1
    shard.now_ms += 1_001
    assert len(shard.lease(5)) == 2
    shard.store.trim(result_ttl_ms=10**9, result_max=10**6, dead_ttl_ms=10**9, dead_max=10**6)
    assert "cuts" not in shard.snapshot()
    assert b"cuts" not in shard.snapshot()["conf"]


def test_one_that_ends_leaves_the_others(shard: Shard) -> None:
    """Two cancel all of one tenant at once: who is through first does not let workers have what the other cancels."""
    first = shard.add(shard.job("a"))
    shard.store.cut("a", shard.reads.submission(), 60_000, holder="one")
    second = shard.add(shard.job("a"))
    assert shard.store.cut("a", shard.reads.submission(), 60_000, holder="two") == 2
    assert shard.store.cut("a", 0, 0, holder="two") == 1
    later = shard.add(shard.job("a"))
    assert [job.id for job in shard.lease(5)] == [*second, *later], "what stood in line when it began"
    assert states(shard, first) == ["cancelled"]
    assert shard.store.cut("a", 0, 0, holder="one") == 0
    assert b"cuts" not in shard.snapshot()["conf"]


def test_of_several_the_one_that_reaches_farthest_counts(shard: Shard) -> None:
    shard.add(shard.job("a"), shard.job("a"))
    for holder, submission in (("one", 2), ("two", 1), ("three", 0)):
        shard.store.cut("a", submission, 60_000, holder=holder)
    assert shard.lease(5) == []


def test_an_older_cut_does_not_shrink_a_newer_one(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job("a"))
    shard.store.cut("a", shard.reads.submission(), 60_000)
    shard.store.cut("a", 0, 60_000)
    assert shard.lease() == []
    assert states(shard, [job_id]) == ["cancelled"]


@pytest.mark.parametrize("cut", [False, True])
def test_who_is_not_cut_pays_no_command_for_it(shard: Shard, cut: bool) -> None:
    """One look at `cuts` a call while somebody is cut, none else."""
    shard.add(*(shard.job("b") for _ in range(3)))
    if cut:
        shard.store.cut("a", 1, 60_000)
    shard.lease()
    looks = 0
    with shard.client.monitor() as monitor:
        shard.lease()
        shard.client.echo("enough")
        for event in monitor.listen():
            if event["command"].startswith("ECHO"):
                break
            looks += event["command"] == f"HGETALL {shard.keys['cuts']}"
    assert looks == int(cut)
