"""Concurrency keys in a shard that somebody else wrote into; and that `verify` sees what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from queueapp.codec import digest
from queueapp.store.calls import packed_keys
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.lua.keyed import keyed, use, used, waiters


def set_of(shard: Shard, *names: str, limit: int = 1) -> str:
    return packed_keys(keyed(shard, *names, limit=limit).keys).partition("\n")[0]


def waits_in(name: str, tenant: str) -> str:
    """The set in which a tenant's sub-lanes wait for a key of limit 1."""
    return f"blocked:{digest(name)}|1|{digest(name)}|{tenant}"


def no_sets(shard: Shard) -> bool:
    return not shard.client.exists(shard.keys["keysets"], shard.keys["keynames"], shard.keys["keyusers"])


# -- rows that are none of ours ------------------------------------------------------------------------------------


def test_a_broken_row_in_a_sub_lane_is_set_aside_and_its_keys_with_it(shard: Shard) -> None:
    (broken,) = shard.add(keyed(shard, "a"))
    (other,) = shard.add(keyed(shard, "b"))
    shard.client.set(shard.keys.job(broken), b"no row of ours")
    (job,) = shard.lease(9)
    assert job.id == other
    shard.store.complete([completed(job)])
    assert no_sets(shard)
    shard.client.delete(shard.keys.job(broken))


def test_a_row_of_another_key_set_takes_no_slots(shard: Shard) -> None:
    """Somebody moved it: a lease counts for the keys under which it was looked at, or not at all."""
    (stray,) = shard.add(keyed(shard, "a"))
    set_name = f"q:acme|main|@{set_of(shard, 'a')}"
    text: Any = shard.client.get(shard.keys.job(stray))
    shard.client.set(shard.keys.job(stray), text.replace(set_of(shard, "a").encode(), set_of(shard, "b").encode()))
    assert shard.lease(9) == []
    assert not shard.client.exists(shard.keys[set_name])
    assert used(shard, "a") == used(shard, "b") == 0
    shard.client.delete(shard.keys.job(stray))


def test_a_hash_of_a_wrong_type_takes_no_slot(shard: Shard) -> None:
    """Found when the lease is written: the slots that were taken in memory are given back, and the next one runs."""
    (broken,) = shard.add(keyed(shard, "a"))
    (other,) = shard.add(keyed(shard, "a", tenant="bee"))
    shard.client.set(shard.keys.run(broken), b"no hash")
    shard.lease(9)
    shard.client.delete(shard.keys.run(broken), shard.keys.job(broken))
    found = shard.lease(9)
    assert [job.id for job in found] == [other]
    assert used(shard, "a") == 1
    shard.store.complete([completed(found[0])])
    assert no_sets(shard)


def test_a_broken_row_in_flight_gives_its_slots_back(shard: Shard) -> None:
    (broken,) = shard.add(keyed(shard, "a"))
    shard.add(keyed(shard, "a", tenant="bee"))
    shard.lease(1)
    shard.client.set(shard.keys.job(broken), b"no row of ours")
    shard.now_ms += LEASE_MS
    shard.store.partition_recover()
    (job,) = shard.lease(9)
    assert job.tenant == "bee"
    shard.store.complete([completed(job)])
    assert no_sets(shard)
    shard.client.delete(shard.keys.job(broken), shard.keys.run(broken))


def test_a_broken_row_that_expires_counts_once(shard: Shard) -> None:
    """Taken out of `expiring` when its time comes, and out of its queue when it is met: its keys have one user less."""
    (broken,) = shard.add(keyed(shard, "a", expires_after_ms=10))
    (other,) = shard.add(keyed(shard, "a"))
    shard.client.setrange(shard.keys.job(broken), 0, "h")
    shard.now_ms += 10
    shard.store.promote_due()
    (job,) = shard.lease(9)
    assert job.id == other
    assert shard.client.hget(shard.keys["keyusers"], f"s:{set_of(shard, 'a')}") == b"1"
    shard.store.complete([completed(job)])
    assert no_sets(shard)
    shard.client.delete(shard.keys.job(broken))


def test_a_dead_letter_without_its_row_takes_its_keys_along(shard: Shard) -> None:
    (dead,) = shard.add(keyed(shard, "a"))
    shard.store.fail([failed(job) for job in shard.lease(1)])
    shard.client.delete(shard.keys.job(dead))
    shard.now_ms += 100_000
    shard.store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=1, dead_max=0, replay_window_ms=1)
    assert no_sets(shard)
    shard.client.delete(shard.keys["dead:acme"])
    shard.client.zrem(shard.keys["tenants"], "acme")


# -- verify --------------------------------------------------------------------------------------------------------

Spoil = Callable[[Shard, str, str], object]
"""Shard, the sub-lane that stands in its lane, the one that waits."""

SPOILS: dict[str, tuple[Spoil, str]] = {
    "no pointer": (lambda s, at, w: s.client.zrem(s.keys["q:acme|main"], "@" + at[-16:]), "stands nowhere"),
    "pointer elsewhere": (
        lambda s, at, w: s.client.zadd(s.keys["q:acme|main"], {"@" + at[-16:]: 99}),
        "pointer of .* is not its head",
    ),
    "both": (lambda s, at, w: s.client.zadd(s.keys["q:bee|main"], {"@" + w[-16:]: 3}), "stands in its lane and waits"),
    "pointer to nothing": (
        lambda s, at, w: s.client.zadd(s.keys["q:acme|main"], {"@" + "x" * 16: 99}),
        "a pointer to .*, which is empty",
    ),
    "waits nowhere": (lambda s, at, w: s.client.delete(s.keys[f"blocked:{digest('a')}"]), "has not .* at its head"),
    "waits at another place": (
        lambda s, at, w: s.client.zadd(s.keys[waits_in("a", "bee")], {w: 77}),
        "has not .* at its head",
    ),
    "waits for nothing": (
        lambda s, at, w: s.client.zadd(s.keys[waits_in("a", "bee")], {at: 1}),
        "blocked:.* holds .* wrongly",
    ),
    "a limit with which nobody compares": (
        lambda s, at, w: s.client.zadd(s.keys[f"blocked:{digest('a')}"], {"9|x": 9}),
        "blocked:.* holds 9.x: nobody waits",
    ),
    "a group of nobody": (
        lambda s, at, w: s.client.zadd(s.keys[waits_in("a", "bee").rpartition("|")[0]], {"cat": 1}),
        "blocked:.* holds cat: nothing waits",
    ),
    "a group that is not there": (
        lambda s, at, w: s.client.delete(s.keys[waits_in("a", "bee").rpartition("|")[0]]),
        "has not .* at its head",
    ),
    "turns of nobody": (lambda s, at, w: s.client.zadd(s.keys["turns:other"], {"x": 1}), "turns:other is kept"),
    "not parked": (lambda s, at, w: s.client.hdel(s.keys["parked"], w), "stands nowhere"),
    "parked and empty": (
        lambda s, at, w: s.client.hset(s.keys["parked"], "q:x|y|@z", digest("a")),
        "parked holds .*, which is empty",
    ),
    "no next look": (lambda s, at, w: s.client.delete(s.keys["waitkeys"]), "waitkeys lacks"),
    "look for nothing": (lambda s, at, w: s.client.zadd(s.keys["waitkeys"], {"other": 1}), "for which nobody waits"),
    "not listed": (lambda s, at, w: s.client.zrem(s.keys["sublanes"], at), "sublanes lacks"),
    "listed and empty": (lambda s, at, w: s.client.zadd(s.keys["sublanes"], {"q:x|y|@z": 0}), "sublanes holds"),
    "slot too many": (
        lambda s, at, w: s.client.zadd(s.keys[f"slots:k:{digest('b')}"], {"job": 1}),
        "holds job wrongly",
    ),
    "slot too few": (lambda s, at, w: s.client.delete(s.keys[f"slots:k:{digest('a')}"]), "slots:k:.* lacks"),
    "free and offered to nobody": (
        lambda s, at, w: s.client.delete(s.keys[f"slots:k:{digest('a')}"]),
        "is free and offered to nobody",
    ),
    "no key set": (lambda s, at, w: s.client.hdel(s.keys["keysets"], at[-16:]), "keysets lacks"),
    "key set too many": (lambda s, at, w: s.client.hset(s.keys["keysets"], "x", "y 1 z"), "keysets keeps x"),
    "wrong count": (
        lambda s, at, w: s.client.hincrby(s.keys["keyusers"], "s:" + w[-16:], 1),
        "keyusers has .* at 3, counted 2",
    ),
    "no count": (lambda s, at, w: s.client.hdel(s.keys["keyusers"], "s:" + w[-16:]), "keyusers lacks"),
    "no text": (lambda s, at, w: s.client.hdel(s.keys["keynames"], digest("a")), "keynames lacks"),
    "text too many": (lambda s, at, w: s.client.hset(s.keys["keynames"], "x", "y"), "keynames keeps x"),
    "flag": (lambda s, at, w: s.client.hdel(s.keys["conf"], "keyed"), "conf keyed is wrong"),
    "runs with another": (
        lambda s, at, w: s.client.hset(s.keys.run(f"{1:022d}"), "k", at[-16:]),
        "runs with another key set",
    ),
}


@pytest.mark.dirty_store
@pytest.mark.parametrize("name", sorted(SPOILS))
def test_verify_finds_what_is_wrong_with_keys(shard: Shard, name: str) -> None:
    shard.add(keyed(shard, "a"), keyed(shard, "b"))
    assert len(shard.lease(1)) == 1
    shard.add(keyed(shard, "a", tenant="bee"))
    assert waiters(shard, "a") == ["bee"]
    assert shard.store.verify() == []
    spoil, message = SPOILS[name]
    spoil(shard, f"q:acme|main|@{set_of(shard, 'b')}", f"q:bee|main|@{set_of(shard, 'a')}")
    found = shard.store.verify()
    assert any(re.search(message, one) for one in found), found


def test_a_key_may_have_any_text(shard: Shard) -> None:
    """Spaces, bars and digits in the text of a key are none of the packing's business."""
    odd = shard.job(keys=(use("a 1 b | c\tx"), use("é" * 100)))
    shard.add(odd)
    names: Any = shard.client.hgetall(shard.keys["keynames"])
    assert sorted(value.decode() for value in names.values()) == ["a 1 b | c\tx", "é" * 100]
    assert len(shard.lease(1)) == 1
