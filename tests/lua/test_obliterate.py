"""obliterate: a shard is emptied in shares; nobody meets it half gone, and what is configured stays."""

from __future__ import annotations

import pytest

from queueapp.errors import Obliterating
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import KeyUse
from tests.lua.harness import Shard, completed, failed


def busy(shard: Shard) -> int:
    """Jobs in every state but running; how many."""
    store = shard.store
    store.configure(1, pool=PoolConf(paused=False), scopes=[ScopeLimits(tenant="a", max_in_flight=5)])
    key = KeyUse(digest="d" * 16, limit=1, pattern="p" * 16, text="customer:1")
    shard.add(*(shard.job(tenant, idempotency="i" * 16) for tenant in "ab"), shard.job("k", keys=[key]))
    one, two, _ = shard.lease(3)
    store.complete([completed(one, result=b"1")])
    store.fail([failed(two)])
    shard.now_ms += 31_000
    store.partition_recover()
    shard.add(shard.job("late", delay_ms=9_000), shard.job("brief", expires_after_ms=900))
    return 5


def empty(shard: Shard, token: str, *, force: bool = False, limit: int = 5) -> tuple[int, int]:
    """(jobs, shares)."""
    jobs, shares, cursor, word = 0, 0, "0", "more"
    while word == "more":
        share = shard.store.obliterate(token, force=force, cursor=cursor, limit=limit)
        word, cursor, jobs, shares = share.word, share.cursor, jobs + share.jobs, shares + 1
    assert word == "done"
    return jobs, shares


def test_every_job_and_key_goes_and_what_is_configured_stays(shard: Shard) -> None:
    number = busy(shard)
    before = shard.snapshot()
    jobs, shares = empty(shard, "t")
    assert jobs == number
    assert shares > 1, "in shares"
    left = shard.snapshot()
    kept = {"conf", "limits", "tasks", "names", "marks", "workers", "worker:w1", "leader", "fence"}
    assert set(left) <= kept
    for name in ("limits", "tasks", "names", "marks"):
        assert left[name] == before[name], "processes that live on know these"
    assert shard.store.verify() == []
    (fresh,) = shard.add(shard.job("a", idempotency="i" * 16))
    assert [job.id for job in shard.lease()] == [fresh]


def test_nobody_meets_a_shard_that_is_half_gone(shard: Shard) -> None:
    busy(shard)
    assert shard.store.obliterate("t", force=False, limit=1).word == "more"
    for act in (
        lambda: shard.store.enqueue([shard.job()]),
        lambda: shard.lease(),
        lambda: shard.store.promote_due(),
        lambda: shard.store.peek(),
    ):
        with pytest.raises(Obliterating, match="ductor obliterate"):
            act()
    empty(shard, "another process goes on", limit=1_000)
    shard.add(shard.job())


def test_while_jobs_run_it_does_nothing_unless_forced(shard: Shard) -> None:
    shard.add(shard.job(), shard.job())
    (running,) = shard.lease()
    before = shard.snapshot()
    refused = shard.store.obliterate("t", force=False)
    assert (refused.word, refused.jobs) == ("running", 1)
    assert shard.snapshot() == before
    assert empty(shard, "t", force=True)[0] == 2
    assert shard.store.complete([completed(running)]) == ["gone"], "a late outcome is refused"
    assert shard.store.extend_lease([(running.id, 1)], 30_000) == [running.id]


def test_the_repeat_of_the_last_share_begins_nothing_anew(shard: Shard) -> None:
    """Its reply may be lost after the pool is back at work."""
    busy(shard)
    empty(shard, "t", limit=10**6)
    (fresh,) = shard.add(shard.job())
    again = shard.store.obliterate("t", force=True, cursor="0", limit=10**6)
    assert (again.word, again.jobs, again.keys) == ("done", 0, 0)
    assert shard.reads.job(fresh) is not None
    assert empty(shard, "another run", limit=10**6)[0] == 1


def test_other_pools_of_the_server_are_left_alone(shard: Shard) -> None:
    shard.add(shard.job())
    near = shard.keys.prefix.replace(":0}", ":1}")
    shard.client.set(f"{near}job:x", "theirs")
    empty(shard, "t")
    assert shard.client.delete(f"{near}job:x") == 1


def test_a_late_share_of_another_run_begins_none(shard: Shard) -> None:
    """Two operators at once: the one is done, the shard is open again, and the other's next share comes."""
    shard.add(*(shard.job() for _ in range(50)))
    share = shard.store.obliterate("one", force=False, limit=5)
    while share.word == "more":
        late = share.cursor
        share = shard.store.obliterate("two", force=False, cursor=share.cursor, limit=5)
    ids = shard.add(shard.job())
    assert shard.store.obliterate("one", force=True, cursor=late, limit=5).word == "done"
    assert [job.id for job in shard.lease()] == ids
