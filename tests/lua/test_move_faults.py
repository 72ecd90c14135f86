"""A move as a rig of faults: at each call of the mover, before it or after it, something happens. No job runs twice or
is lost, and none is left between the two pools.

The mover is the real one (`transit`), on two shards under one clock that the rig moves. What happens: he dies; another
one, or a scheduler, does all of it meanwhile; somebody cancels the jobs, moves them back, takes them back; the other
pool is emptied, or refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import redis

from queueapp.errors import StoreError, StoreUnavailable
from queueapp.states import State
from queueapp.store import shards, transit
from queueapp.store.calls import Call
from queueapp.store.keys import ShardKeys
from queueapp.store.records import KeyUse
from queueapp.store.store import Store
from tests.lua.harness import Shard, completed

STEPS = ["depart", "departed", "arrive", "arrived"]
KEY = KeyUse(digest="d" * 16, limit=5, pattern="p" * 16, text="customer:1")


class Killed(BaseException):
    """The mover's process is gone."""


@dataclass
class Rig:
    """Two pools, and what happens at which call of the mover."""

    pools: dict[str, Shard]
    ids: list[str] = field(default_factory=list)
    armed: tuple[str, bool, Callable[[], None]] | None = None
    """Name of the call, whether it was done by then, what happens."""
    ran: list[str] = field(default_factory=list)

    def __getitem__(self, pool: str) -> Shard:
        return self.pools[pool]

    def move(self, source: str, target: str, ids: Sequence[str]) -> list[str]:
        store = self[source].store
        words = store.depart(ids, f"{self[target].keys.code}.0")
        transit.deliver(source, store)
        return words

    def pass_s(self, seconds: float) -> None:
        for shard in self.pools.values():
            shard.now_ms += round(seconds * 1_000)

    def schedulers(self) -> None:
        """What every scheduler does, until there is nothing to do."""
        for pool, shard in [*self.pools.items()] * 2:
            transit.deliver(pool, shard.store)

    def work(self) -> None:
        """Whatever waits anywhere runs now."""
        for shard in self.pools.values():
            while leased := shard.lease(10):
                self.ran += [job.id for job in leased]
                shard.store.complete([completed(job) for job in leased])

    def take_back(self, pool: str) -> None:
        self[pool].store.recall([(job_id, 0) for job_id in self.ids])

    def obliterate(self, pool: str) -> None:
        assert self[pool].store.obliterate("run", force=True, limit=10**6, cursor="").word == "done"

    def states(self, pool: str) -> list[str]:
        found = self[pool].reads.jobs(self.ids)
        return [str((job.outcome or job.state).value) if job is not None else "" for job in found]

    def is_sound(self) -> None:
        """Nobody is between the pools, and both recount well."""
        for shard in self.pools.values():
            assert shard.store.verify() == []
            assert "moving" not in shard.snapshot()


@pytest.fixture
def rig(
    shard: Shard, redis_client: redis.Redis, shard_keys: ShardKeys, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rig]:
    other = Shard(redis_client, ShardKeys(namespace=shard_keys.namespace, code="others"))
    made = Rig({"here": shard, "there": other})
    run = Store._run

    def hooked(store: Store, call: Call[Any]) -> Any:
        name = call.script.name
        if made.armed is None or made.armed[0] != name:
            return run(store, call)
        _, done, act = made.armed
        made.armed = None
        if done:
            reply = run(store, call)
            act()
            return reply
        act()
        schemas, _, *rest = call.argv
        return run(store, replace(call, argv=[schemas, store._clock_ms(), *rest]))  # it comes as late as that

    codes = {one.keys.code: pool for pool, one in made.pools.items()}
    monkeypatch.setattr(Store, "_run", hooked)
    monkeypatch.setattr(shards, "store", lambda pool: made[pool].store)
    monkeypatch.setattr(shards, "reads", lambda pool: made[pool].reads)
    monkeypatch.setattr(shards, "keys", lambda pool: made[pool].keys)
    monkeypatch.setattr(shards, "pools_of", lambda wanted: {code: codes[code] for code in wanted if code in codes})
    made.ids = shard.add(shard.job(keys=(KEY,)), shard.job(), shard.job(tenant="globex", tier="continue"))
    yield made
    made.armed = None
    made.is_sound()


at_each_call = pytest.mark.parametrize(
    ("step", "done"), [(step, done) for step in STEPS for done in (False, True)], ids=lambda value: str(value)
)


@at_each_call
def test_the_mover_dies(rig: Rig, step: str, done: bool) -> None:
    def dies() -> None:
        raise Killed

    rig.armed = (step, done, dies)
    with pytest.raises(Killed):
        rig.move("here", "there", rig.ids)
    rig.work()
    rig.schedulers()
    rig.work()
    assert sorted(rig.ran) == rig.ids


@at_each_call
@pytest.mark.parametrize("works", [False, True])
def test_another_does_all_of_it_meanwhile(rig: Rig, step: str, done: bool, works: bool) -> None:
    """And with `works` all of them have run by then."""

    def another() -> None:
        rig.move("here", "there", rig.ids)
        if works:
            rig.work()

    rig.armed = (step, done, another)
    rig.move("here", "there", rig.ids)
    rig.schedulers()
    rig.work()
    assert sorted(rig.ran) == rig.ids
    assert rig.states("here") == ["moved"] * 3


@at_each_call
@pytest.mark.parametrize("slow_s", [0, 29, 31, 100])
def test_another_moves_them_there_and_back_meanwhile(rig: Rig, step: str, done: bool, slow_s: int) -> None:
    """And the one who was slower, by so much, says what he had to say of the first departure."""

    def another() -> None:
        rig.move("here", "there", rig.ids)
        rig.move("there", "here", rig.ids)
        rig.pass_s(slow_s)

    rig.armed = (step, done, another)
    rig.move("here", "there", rig.ids)
    rig.schedulers()
    rig.work()
    assert sorted(rig.ran) == rig.ids


@at_each_call
@pytest.mark.parametrize("ran", [False, True])
def test_somebody_cancels_them(rig: Rig, step: str, done: bool, ran: bool) -> None:
    """Each job ends as cancelled, once, in the pool where it is; or who cancels is told that it came too late."""
    said: list[str] = []

    def cancels() -> None:
        if ran:
            rig.work()
        said.extend(transit.cancel("here", rig.ids))

    rig.armed = (step, done, cancels)
    rig.move("here", "there", rig.ids)
    rig.schedulers()
    before = len(rig.ran)
    rig.work()
    assert len(rig.ran) == before, "nothing runs after it"
    assert said == ["already" if before else "cancelled"] * 3
    cancelled = [int(one.snapshot().get("stats", {}).get(b"cancelled", 0)) for one in rig.pools.values()]
    assert sum(cancelled) == (0 if before else 3)


@at_each_call
def test_somebody_cancels_them_and_the_mover_dies(rig: Rig, step: str, done: bool) -> None:
    """Whoever was told that they will be cancelled finds it so."""

    def dies() -> None:
        rig["here"].store.cancel(rig.ids)
        raise Killed

    rig.armed = (step, done, dies)
    with pytest.raises(Killed):
        rig.move("here", "there", rig.ids)
    late = step == "arrived" and done
    rig.schedulers()
    rig.work()
    assert len(rig.ran) == (3 if late else 0)


@at_each_call
@pytest.mark.parametrize("slow_s", [0, 20, 46])
def test_an_operator_takes_them_back(rig: Rig, step: str, done: bool, slow_s: int) -> None:
    """Before the mover goes on nothing passes, or enough time for them to be back, or nearly."""

    def takes_back() -> None:
        rig.take_back("here")
        rig.pass_s(slow_s)
        rig.schedulers()

    rig.armed = (step, done, takes_back)
    rig.move("here", "there", rig.ids)
    rig.pass_s(46)
    rig.schedulers()
    rig.work()
    assert sorted(rig.ran) == rig.ids


@at_each_call
def test_an_operator_takes_them_back_from_a_mover_that_died(rig: Rig, step: str, done: bool) -> None:
    def dies() -> None:
        rig.take_back("here")
        raise Killed

    rig.armed = (step, done, dies)
    with pytest.raises(Killed):
        rig.move("here", "there", rig.ids)
    rig.schedulers()
    rig.work()
    rig.pass_s(46)
    rig.schedulers()
    rig.work()
    assert sorted(rig.ran) == rig.ids


@at_each_call
def test_the_other_pool_is_emptied(rig: Rig, step: str, done: bool) -> None:
    """What had come there by then is gone, as was asked for; the others come afterwards. Nothing runs twice."""
    rig.armed = (step, done, lambda: rig.obliterate("there"))
    rig.move("here", "there", rig.ids)
    rig.schedulers()
    rig.work()
    came = step == "arrived" or (step, done) == ("arrive", True)
    assert sorted(rig.ran) == ([] if came else rig.ids)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("step", ["arrive", "came"])
def test_the_other_pool_is_being_emptied(rig: Rig, step: str, done: bool) -> None:
    """It answers nobody, and nothing comes back while it does not."""
    there = rig["there"]
    rig["here"].store.depart(rig.ids, "others.0")
    if step == "came":
        rig.take_back("here")
        rig.pass_s(46)
    there.client.hset(there.keys["conf"], "schema", "obliterating")
    with pytest.raises(StoreError):
        transit.deliver("here", rig["here"].store)
    assert rig.states("here") == ["moving"] * 3
    there.client.delete(there.keys["conf"])
    rig.schedulers()
    rig.work()
    assert sorted(rig.ran) == rig.ids


@at_each_call
def test_the_store_is_full(rig: Rig, step: str, done: bool) -> None:
    def refused() -> None:
        raise StoreUnavailable("OOM")

    rig.armed = (step, done, refused)
    with pytest.raises(StoreUnavailable):
        rig.move("here", "there", rig.ids)
    assert State.MOVING.value not in rig.states("there")
    rig.schedulers()
    rig.work()
    assert sorted(rig.ran) == rig.ids
