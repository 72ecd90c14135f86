"""fsck and verify know parents and children: whole families are left alone, and what was damaged is put right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from queueapp.store.family import planting
from queueapp.store.family_records import Away
from queueapp.store.recount import Recount
from queueapp.store.trees import pages
from tests.lua.families import Kin, child_id, complete, die, lease, node, plant, state
from tests.lua.harness import Shard, completed


@dataclass
class Scene:
    """Families in every state."""

    shard: Shard
    waits: Kin
    dead: Kin
    runs: str
    """A child of `waits` that runs."""


@pytest.fixture
def scene(shard: Shard) -> Scene:
    waits = plant(shard, ["continue"] * 4, expires_after_ms=10**9)
    die(shard, waits.children[0])
    complete(shard, waits.children[1])
    [running] = lease(shard, waits.children[2])
    dead = plant(shard, ["fail_parent"] * 2)
    shard.store.cancel([dead.children[0]])
    wide = [node(shard, waits=True)]
    wide += [node(shard, wide[0].job.id) for _ in range(5)]
    shard.store._run(planting(pages(wide, most=3)[0], "new", shard.now_ms))
    far = node(shard, waits=True)
    away = Away(
        id=f"other0.0.{child_id()}", parent=far.job.id, on_failure="continue", position=0, tenant="acme", tree=b"{}"
    )
    shard.store.enqueue_flow([far], [away])
    gone = plant(shard, ["continue"] * 600)
    shard.store.cancel([gone.parent])
    return Scene(shard, waits, dead, running.id)


def mend(shard: Shard) -> list[tuple[str, str]]:
    """What a repair found; it must leave nothing to find."""
    recount = Recount(shard.store, repair=True, pause=lambda seconds: None)
    for _ in recount.run():
        pass
    assert recount.settled
    return [(one.kind, one.word) for one in recount.findings]


def test_what_is_whole_is_left_alone(scene: Scene) -> None:
    before = scene.shard.snapshot()
    assert mend(scene.shard) == []
    assert scene.shard.snapshot() == before


def forget_in_waiting(scene: Scene) -> None:
    scene.shard.client.zrem(scene.shard.keys["waiting"], scene.waits.parent)


def forget_expiry(scene: Scene) -> None:
    scene.shard.client.zrem(scene.shard.keys["expiring"], scene.waits.parent)


def forget_open_child(scene: Scene) -> None:
    scene.shard.client.srem(scene.shard.keys[f"open:{scene.waits.parent}"], scene.waits.children[3])


def forget_a_link(scene: Scene) -> None:
    scene.shard.client.hdel(scene.shard.keys["parents"], scene.waits.children[3])


def lose_a_child(scene: Scene) -> None:
    """Its row is gone, and its parent was not told."""
    child = scene.waits.children[3]
    shard = scene.shard
    shard.client.zrem(shard.keys["q:acme|main"], child)
    shard.client.delete(shard.keys.job(child), shard.keys.run(child))
    shard.client.hincrby(shard.keys["counts"], "w", -1)
    shard.client.zincrby(shard.keys["tenants"], -1, "acme")


def add_a_stranger(scene: Scene) -> None:
    scene.shard.client.sadd(scene.shard.keys[f"open:{scene.waits.parent}"], child_id())


def break_a_link(scene: Scene) -> None:
    scene.shard.client.hset(scene.shard.keys["parents"], child_id(), "nonsense")


def keep_children_of_nobody(scene: Scene) -> None:
    scene.shard.client.hset(scene.shard.keys[f"children:{'9' * 22}"], "x", "0|f|completed|")


def keep_open_of_nobody(scene: Scene) -> None:
    scene.shard.client.sadd(scene.shard.keys[f"open:{'9' * 22}"], child_id())


def forget_the_flag(scene: Scene) -> None:
    scene.shard.client.hdel(scene.shard.keys["conf"], "sweeps")


def forget_the_sweeps(scene: Scene) -> None:
    scene.shard.client.delete(scene.shard.keys["sweeps"])


def sweep_nobody(scene: Scene) -> None:
    scene.shard.client.zadd(scene.shard.keys["sweeps"], {f"c:{'9' * 22}": 1})


def _leased(scene: Scene) -> Any:
    record = scene.shard.reads.job(scene.runs)
    assert record is not None
    return SimpleNamespace(id=scene.runs, attempts=record.attempts)


DAMAGES: list[Callable[[Scene], None]] = [
    forget_in_waiting,
    forget_expiry,
    forget_open_child,
    forget_a_link,
    lose_a_child,
    add_a_stranger,
    break_a_link,
    keep_children_of_nobody,
    keep_open_of_nobody,
    forget_the_flag,
    forget_the_sweeps,
    sweep_nobody,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damage_is_seen_and_put_right(scene: Scene, damage: Callable[[Scene], None]) -> None:
    shard = scene.shard
    damage(scene)
    assert shard.store.verify() != []
    found = mend(shard)
    assert found
    assert {word for _, word in found} == {"mended"}
    assert shard.store.verify() == []


def test_a_parent_with_a_lost_child_goes_on_when_it_is_mended(scene: Scene) -> None:
    lose_a_child(scene)
    scene.shard.store.complete([completed(_leased(scene))])
    assert state(scene.shard, scene.waits.parent) == "waiting"
    mend(scene.shard)
    assert state(scene.shard, scene.waits.parent) == "pending"
    told = {child.child: child.outcome for child in scene.shard.store.children(scene.waits.parent)}
    assert told[scene.waits.children[3]] == "lost"
