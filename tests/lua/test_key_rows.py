"""Concurrency keys in the store: what is written, what goes with the last job, repeats, and what readers see."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.codec import digest
from queueapp.store import scripts
from queueapp.store.calls import packed_keys
from queueapp.store.configuration import PoolConf
from tests.lua.harness import LEASE_MS, START_MS, Shard, completed, failed
from tests.lua.keyed import OF_KEYS, keyed, left, use, used, waiters
from tests.lua.test_replay import scene


def test_a_job_with_keys_writes_exactly_this(shard: Shard) -> None:
    shard.add(shard.job())
    plain = set(shard.snapshot())
    job = keyed(shard, "b", "a", limit=2)
    shard.add(job)
    packed = packed_keys(job.keys)
    ks = packed.partition("\n")[0]
    found = shard.snapshot()
    first, second = sorted(job.keys, key=lambda key: key.digest)
    assert {name: found[name] for name in set(found) - plain - {f"job:{job.id}"}} == {
        f"q:acme|main|@{ks}": [(job.id.encode(), 2.0)],
        "sublanes": [(f"q:acme|main|@{ks}".encode(), 0.0)],
        "keysets": {
            ks.encode(): f"{first.digest} 2 {first.pattern}\n{second.digest} 2 {second.pattern}".encode(),
        },
        "keynames": {key.digest.encode(): key.text.encode() for key in job.keys},
        "keyusers": {f"s:{ks}".encode(): b"1", **{f"k:{key.digest}".encode(): b"1" for key in job.keys}},
    }
    assert found["q:acme|main"][1] == (f"@{ks}".encode(), 2.0)
    assert found[f"job:{job.id}"].startswith(f"p100000000000{2}{START_MS}|1|acme|||||||||{ks}|f00d\n".encode())
    assert len(ks) == 16


def test_all_that_keys_need_goes_with_the_last_job(shard: Shard) -> None:
    shard.add(keyed(shard, "a", "b"), keyed(shard, "a", "b"), keyed(shard, "a"), keyed(shard, "a", delay_ms=5_000))
    (one,) = shard.lease(9)
    shard.store.fail([failed(one)])
    (two,) = shard.lease(9)
    shard.store.complete([completed(two)])
    shard.store.cancel([f"{4:022d}"])
    (three,) = shard.lease(9)
    shard.store.complete([completed(three)])
    assert "keysets" in left(shard), "the dead letter can be redriven"
    shard.store.discard([one.id])
    assert left(shard) == []


def test_a_dead_letter_that_is_trimmed_takes_its_keys_along(shard: Shard) -> None:
    shard.add(keyed(shard, "a"), keyed(shard, "b"))
    one, two = shard.lease(2)
    shard.store.fail([failed(one)])
    shard.store.move_to_dlq(shard.add(keyed(shard, "c")), "by hand")
    shard.now_ms += 10_000
    shard.store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=1, dead_max=0, replay_window_ms=1)
    assert shard.client.hgetall(shard.keys["keynames"]) == {digest("b").encode(): b"b"}
    shard.store.complete([completed(two)])
    assert left(shard) == []


def test_jobs_without_keys_cost_no_command_more(shard: Shard) -> None:
    """The same work in a pool where keys are in use and in one where they are not: the same commands, one by one, but
    that a call for work looks when the next key with waiters is due."""

    def commands() -> dict[str, int]:
        stats: Any = shard.client.info("commandstats")
        return {name: int(values["calls"]) for name, values in stats.items() if name != "cmdstat_info"}

    def work() -> dict[str, int]:
        before = commands()
        shard.add(shard.job(), shard.job(), shard.job("bee"))
        jobs = shard.lease(2)
        shard.store.complete([completed(jobs[0])])
        shard.store.fail([failed(jobs[1])])
        shard.store.cancel([job_id for _, _, job_id in shard.store.peek(5)])
        return {name: n - before.get(name, 0) for name, n in commands().items() if n != before.get(name, 0)}

    work()
    without = work()
    shard.add(keyed(shard, "a", tenant="keyed"), keyed(shard, "a", tenant="keyed"))
    shard.lease(1, worker="another")
    with_keys = work()
    assert with_keys.pop("cmdstat_zrange") == without.pop("cmdstat_zrange") + 1
    assert with_keys == without


def test_a_pool_without_keys_never_looks_for_them(shard: Shard) -> None:
    touched: list[str] = []
    with shard.client.monitor() as monitor:
        shard.add(shard.job(), shard.job())
        (one, two) = shard.lease(2)
        shard.store.cycle("w1", 2, want=1, begin=0, lease_ms=LEASE_MS, finished=[completed(one)])
        shard.store.fail([failed(two)])
        shard.store.promote_due()
        shard.store.partition_recover()
        shard.client.echo("that was all")
        for event in monitor.listen():
            if event["command"].startswith("ECHO"):
                break
            if event["client_type"] == "lua":
                touched.append(event["command"].replace(shard.keys.prefix, ""))
    assert touched
    assert [command for command in touched if any(f" {name}" in command for name in OF_KEYS)] == []


def test_repeats_take_and_give_back_no_slot_twice(shard: Shard) -> None:
    job = keyed(shard, "a", limit=2)
    shard.add(job)
    shard.add(job)
    shard.add(keyed(shard, "a", limit=2))
    (users,) = [count for field, count in shard.snapshot()["keyusers"].items() if field.startswith(b"s:")]
    assert users == b"2"
    one, two = shard.lease(5)
    again = shard.store.check_and_lease("w1", shard.seqs["w1"], want=5, begin=5, lease_ms=LEASE_MS)
    assert sorted(leased.id for leased in again.jobs) == sorted([one.id, two.id])
    assert used(shard, "a") == 2
    shard.add(keyed(shard, "a", limit=2, tenant="ant"), keyed(shard, "a", limit=2, tenant="bee"))
    for _ in range(2):
        shard.store.complete([completed(one)])
    assert waiters(shard, "a") == ["bee"]
    assert used(shard, "a") == 1


@pytest.mark.parametrize("name", [name for name in scripts.names() if name != "explain"])
def test_a_repeat_with_keys_changes_nothing(shard: Shard, name: str) -> None:
    """Every script once more, with keys on all the jobs; one key is full, so that some wait for it."""
    plain = shard.job
    shard.job = lambda tenant="acme", **options: plain(  # type: ignore[method-assign]  # mypy infers no lambda with a default
        tenant, keys=(use("all", 4), use(f"of {tenant}", 2)), **options
    )
    act = scene(shard, name)
    first = act()
    before = shard.snapshot()
    assert act() == first or name in ("cancel", "move_to_dlq", "retry_from_dlq", "discard", "fail")
    after = shard.snapshot()
    for key in before.keys() | after.keys():
        if key.startswith(OF_KEYS) or "|@" in key:
            assert after.get(key) == before.get(key), key


@pytest.mark.parametrize("policy", ["fifo", "tiered", "aging", "wfq"])
def test_the_oldest_job_is_found_wherever_it_stands(shard: Shard, policy: str) -> None:
    """In a sub-lane at the head of its lane, and in one that waits for its key, whose lane stands in no walk."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(keyed(shard, "a", tenant="cat"))
    standing = shard.store.oldest()
    assert [job.id for job in standing.jobs] == [f"{1:022d}"]
    shard.lease(1)
    shard.now_ms += 5
    (parked,) = shard.add(keyed(shard, "a", tenant="bee"))
    shard.now_ms += 5
    shard.add(shard.job())
    standing = shard.store.oldest()
    assert (standing.first, standing.cursor) == (-1, "-1")
    assert (standing.jobs[0].id, standing.jobs[0].since_ms) == (parked, START_MS + 5)
    assert len(standing.jobs) == 2


def test_peek_shows_what_would_be_leased_and_writes_nothing(shard: Shard) -> None:
    shard.add(*(keyed(shard, "a") for _ in range(3)), keyed(shard, "a", "b"), keyed(shard, "b"), shard.job())
    before = shard.snapshot()
    peeked = [job_id for _, _, job_id in shard.store.peek(9)]
    assert shard.snapshot() == before
    assert [job.id for job in shard.lease(9)] == peeked
    assert len(peeked) == 3


def test_a_list_of_a_queue_shows_jobs_only(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    (plain,) = shard.add(shard.job())
    page = shard.store.browse("q:acme|main", count=1)
    assert list(page.ids) == [plain]
    assert page.cursor is None
