"""C113 on a clock of the test's own: many trees over two pools, a rate and a ceiling, workers that die, notes that are
lost or told twice. Each parent runs once, and none waits for ever."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from queueapp.store import trees
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.family_records import Away, Node, Note
from tests.lua.families import child_id, node
from tests.lua.harness import LEASE_MS, Shard, completed

TREES, CHILDREN = 60, 15


def relay(shards: dict[str, Shard], told: random.Random) -> None:
    """A scheduler that dies now and then before it could take a note away."""
    for code, shard in shards.items():
        for note in shard.store.outbox(50):
            _tell(shards, note)
            if told.random() < 0.8:
                shard.store.relayed([note.entry])
        assert code


def _tell(shards: dict[str, Shard], note: Note) -> None:
    there = shards[note.to.split(".")[0]].store
    if note.end is not None:
        there.child_done([note.end])
    else:
        there.enqueue_flow(*trees.unpack(note.tree), "sent")


def tree(shard: Shard, other: Shard) -> tuple[list[Node], list[Away]]:
    root = node(shard, waits=True)
    nodes, away = [root], []
    for position in range(CHILDREN):
        if position % 2:
            nodes.append(node(shard, root.job.id, position=position, max_crashes=99))
            continue
        child = node(other, shard.keys.public_id(root.job.id), position=position, max_crashes=99, id=child_id())
        away.append(
            Away(
                id=other.keys.public_id(child.job.id),
                parent=root.job.id,
                on_failure="fail_parent",
                position=position,
                tenant="acme",
                tree=trees.pack([child], []),
            )
        )
    return nodes, away


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
def test_c113_all_parents_of_a_rate_limited_pool_finish(shard: Shard, other: Shard, seed: int) -> None:
    """C113: the last children never start and the parent never fires."""
    dice = random.Random(seed)
    other.store.configure(1, pool=PoolConf(max_in_flight=4))
    limit = ScopeLimits(tenant="acme", rate=Rate(rate=40, period_ms=1_000, burst=20), max_in_flight=3)
    other.store.configure(2, scopes=[limit])
    shards = {shard.keys.code: shard, other.keys.code: other}
    roots = set()
    for _ in range(TREES):
        nodes, away = tree(shard, other)
        shard.store.enqueue_flow(nodes, away)
        roots.add(nodes[0].job.id)
    ran: Counter[str] = Counter()
    for turn in range(4_000):
        relay(shards, dice)
        for each in shards.values():
            leased = each.lease(20, worker=f"w{turn}", begin=20)
            if dice.random() < 0.05:
                continue  # the worker is gone with all that it holds
            done = [completed(job, result=b"1") for job in leased]
            each.store.complete(done)
            if dice.random() < 0.2:
                each.store.complete(done)
            ran.update(job.id for job in leased if job.id in roots)
        shard.now_ms += 200 if dice.random() < 0.98 else LEASE_MS
        other.now_ms = shard.now_ms
        for each in shards.values():
            each.store.partition_recover()
            each.store.promote_due()
            each.store.backlog_promote(turn)
        if len(ran) == TREES and not shard.client.zcard(shard.keys["active"]):
            break
    assert ran == dict.fromkeys(roots, 1)
    relay(shards, random.Random(0))
    for each in shards.values():
        each.store.relayed([note.entry for note in each.store.outbox(1_000)])
    left = [
        key for key in (*shard.snapshot(), *other.snapshot()) if key.split(":")[0] in ("open", "parents", "waiting")
    ]
    assert left == []
