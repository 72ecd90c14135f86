"""obliterate: a shard is emptied in shares; nobody meets it half gone, and what is configured stays."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis

from queueapp.errors import Obliterating
from queueapp.store import embedded, scripts
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import KeyUse
from queueapp.store.store import Store
from tests.lua.damage import full_scene
from tests.lua.harness import Shard, completed, failed

KEPT = {"conf", "limits", "tasks", "names", "marks", "workers", "watched", "worker:w1", "leader", "fence"}
OF_JOBS = {"tiers", "keyed", "leftover", "once", "parks", "old", "moved", "cuts", "blocks", "sweeps"}
"""Fields of `conf` that say something about the jobs that there are."""
OF_OTHERS = {
    "schema", "policy", "paused", "max", "fill", "unit", "cost", "weight", "by", "step", "floors", "gen", "mode",
    "front", "room", "rated",
}  # fmt: skip
"""Those that say what is configured."""


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
    jobs, shares, cursor, word = 0, 0, "", "more"
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
    assert set(left) <= KEPT
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
    again = shard.store.obliterate("t", force=True, limit=10**6)
    assert (again.word, again.jobs, again.keys) == ("done", 0, 0)
    assert shard.reads.job(fresh) is not None
    assert empty(shard, "another run", limit=10**6)[0] == 1


def test_other_pools_of_the_server_are_left_alone(shard: Shard) -> None:
    shard.add(shard.job())
    near = shard.keys.prefix.replace(":0}", ":1}")
    shard.client.set(f"{near}job:x", "theirs")
    empty(shard, "t")
    assert shard.client.delete(f"{near}job:x") == 1


def test_a_late_share_of_another_run_is_told_that_the_shard_is_open_again(shard: Shard) -> None:
    """Two operators at once: the one is through, the shard is at work again, and the other's next share comes."""
    shard.add(*(shard.job() for _ in range(50)))
    share = shard.store.obliterate("one", force=False, limit=5)
    while share.word == "more":
        late = share.cursor
        share = shard.store.obliterate("two", force=False, cursor=share.cursor, limit=5)
    ids = shard.add(shard.job())
    before = shard.snapshot()
    for force in (False, True):
        told = shard.store.obliterate("one", force=force, cursor=late, limit=5)
        assert (told.word, told.jobs, told.keys) == ("reopened", 0, 0)
    assert shard.snapshot() == before
    assert [job.id for job in shard.lease()] == ids


def lose_the_mark(shard: Shard) -> None:
    """As a failover to a replica that had not got it yet."""
    shard.client.hset(shard.keys["conf"], "schema", scripts.SCHEMA)
    shard.client.hdel(shard.keys["conf"], "obliterating")


def test_a_share_that_finds_its_mark_lost_is_told_so(shard: Shard) -> None:
    shard.add(*(shard.job() for _ in range(50)))
    share = shard.store.obliterate("t", force=False, limit=5)
    lose_the_mark(shard)
    ids = [*shard.add(shard.job())]
    assert shard.store.obliterate("t", force=True, cursor=share.cursor, limit=10**6).word == "unmarked"
    assert shard.reads.job(ids[0]) is not None
    empty(shard, "once more", limit=10**6)


def last_cursor(shard: Shard) -> str:
    """Of a SCAN that has nearly all keys behind it."""
    cursor, last = -1, "0"
    while cursor != 0:
        cursor, _ = shard.client.scan(max(0, cursor), count=5)
        last = str(cursor) if cursor else last
    return last


@pytest.mark.parametrize("changed", ["process", "mark"])
def test_a_cursor_of_another_server_or_under_another_mark_is_not_trusted(shard: Shard, changed: str) -> None:
    """A failover: the new primary gives other cursors. Or the mark was lifted and set anew between two shares: what the
    late one has behind it was filled again."""
    shard.add(*(shard.job() for _ in range(60)))
    shard.store.obliterate("t", force=False, limit=1)
    first = shard.store.obliterate("on", force=False, limit=1)
    mark, process, _ = first.cursor.split(" ")
    assert process == shard.client.info("server")["run_id"]
    if changed == "process":
        process = "0" * 40
    else:
        lose_the_mark(shard)
        shard.store.obliterate("another", force=False, limit=1)
    late = f"{mark} {process} {last_cursor(shard)}"
    share = shard.store.obliterate("t", force=False, cursor=late, limit=1)
    assert share.word == "more"
    while share.word == "more":
        share = shard.store.obliterate("t", force=False, cursor=share.cursor, limit=50)
    assert set(shard.snapshot()) <= KEPT


def test_behind_a_failover_it_begins_anew(shard: Shard, own_server: Callable[..., embedded.EmbeddedServer]) -> None:
    """The new primary has all that the old one had left, and cursors of its own."""
    for _ in range(3):
        shard.add(*(shard.job() for _ in range(250)))
    share = shard.store.obliterate("t", force=False, limit=300)
    share = shard.store.obliterate("t", force=False, cursor=share.cursor, limit=300)
    with redis.Redis.from_url(own_server().url, protocol=2) as client:
        promoted = Shard(client, shard.keys)
        for name in list(shard.client.scan_iter(f"{shard.keys.prefix}*", count=1000)):
            dump: Any = shard.client.dump(name)
            client.restore(name, 0, dump)
        assert len(promoted.snapshot()) > 100
        while share.word == "more":
            share = promoted.store.obliterate("t", force=False, cursor=share.cursor, limit=300)
        assert share.word == "done"
        assert set(promoted.snapshot()) <= KEPT
        assert promoted.store.verify() == []
    empty(shard, "t", limit=1_000)


@pytest.mark.parametrize("policy", ["tiered", "wfq", "drr"])
def test_of_a_shard_in_which_everything_occurs_nothing_is_left(shard: Shard, policy: str) -> None:
    """Looked for in the whole key space; and `conf` does not say any more what jobs there are."""
    full_scene(shard, policy, scheduled=policy == "drr")
    shard.store.depart([shard.store.peek(1)[0][2]], "other.0")
    shard.store.cut("acme", 10**6, 600_000)
    shard.client.set(shard.keys["job:" + "x" * 22], "no row of ours")
    shard.client.sadd(shard.keys["quarantine"], "x" * 22)
    if policy == "tiered":  # a change of policy is on its way
        shard.versions += 1
        shard.store.configure(shard.versions, pool=PoolConf(policy="wfq", max_in_flight=12))
        assert any(name.startswith("~") for name in shard.snapshot()) or shard.store.rerank(1).more
    shard.client.zadd(shard.keys["watched"], {"w1": 0})
    shard.store.erase("acme", ["z" * 22], mode="bar")
    limits = shard.snapshot()["limits"]
    empty(shard, "t", force=True, limit=40)
    left = shard.snapshot()
    assert set(left) - {f"erased:{'z' * 22}"} <= KEPT
    assert {"watched", f"erased:{'z' * 22}"} <= set(left), "a death shows as before, and what was erased stays away"
    assert left["limits"] == limits
    assert not OF_JOBS & {field.decode() for field in left["conf"]}
    assert not {b"stop", b"alone"} & set(left["worker:w1"])
    assert shard.store.verify() == []
    (fresh,) = shard.add(shard.job("new"))
    if policy != "drr":
        assert [job.id for job in shard.lease()] == [fresh]


def test_every_field_of_conf_is_known_to_be_of_jobs_or_not() -> None:
    """A new one that says something about the jobs must go with them."""
    [read] = re.findall(
        r"local conf = redis.call\('HMGET', P .. 'conf', (.*?)\)\n", scripts.source("include/shard.lua"), re.S
    )
    assert set(re.findall(r"'(\w+)'", read)) == OF_JOBS | OF_OTHERS
    [gone] = re.findall(r"redis.call\('HDEL', P .. 'conf', (.*?)\)\n", scripts.source("obliterate.lua"), re.S)
    assert set(re.findall(r"'(\w+)'", gone)) == OF_JOBS | {"obliterating"}


@pytest.mark.parametrize("limit", [1, 100, 1_000])
def test_a_share_is_bounded(shard: Shard, limit: int) -> None:
    """However many jobs there are: SCAN gives a few more than it is asked for, and two keys of a job go together."""
    for _ in range(8):
        shard.add(*(shard.job(f"t{n % 40}") for n in range(250)))
    share = shard.store.obliterate("t", force=False, limit=limit)
    assert share.word == "more"
    assert share.keys <= 2 * limit + 100
    empty(shard, "t", limit=1_000)


def test_without_the_right_to_info_cursors_are_trusted(shard: Shard, redis_url: str) -> None:
    user = f"user-{shard.keys.namespace}"
    shard.client.execute_command("ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all", "-info")
    shard.add(*(shard.job() for _ in range(20)))
    try:
        with redis.Redis.from_url(redis_url, protocol=2, username=user, password="secret") as client:
            store = Store(client, shard.keys)
            share = store.obliterate("t", force=False, limit=5)
            assert share.cursor.split(" ")[1] == "unknown"
            while share.word == "more":
                share = store.obliterate("t", force=False, cursor=share.cursor, limit=5)
    finally:
        shard.client.execute_command("ACL", "DELUSER", user)
    assert set(shard.snapshot()) <= KEPT
