"""From one schema to the next: nothing to do, in bounded batches, interrupted and resumed, refused when it is newer."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import redis
from django.core.management import CommandError, call_command

from queueapp.errors import SchemaMismatch, StoreError, Upgrading
from queueapp.store import scripts, shards, upgrades
from queueapp.store.ids import new_id
from queueapp.store.keys import ShardKeys
from queueapp.store.records import Completed, NewJob
from queueapp.store.store import Store
from queueapp.store.upgrades import Converter, Progress, Step

pytestmark = pytest.mark.django_db

ENDED = 60
OLD = b"old:"


def old_results(client: redis.Redis, keys: ShardKeys, cursor: str, limit: int) -> Step:
    """Results of the older layout begin with `old:`; those without are converted already."""
    following, found = upgrades.scan(client, keys, "result:*", cursor, limit)
    converted = 0
    for key in found:
        value = client.get(key)
        if isinstance(value, bytes) and value.startswith(OLD):
            client.set(key, value.removeprefix(OLD))
            converted += 1
    return Step(cursor=following, converted=converted)


@pytest.fixture
def converter(monkeypatch: pytest.MonkeyPatch) -> Converter:
    made = Converter(source="0", target="1", title="results without a prefix", batch=old_results)
    monkeypatch.setitem(upgrades.CONVERTERS, "0", made)
    return made


@pytest.fixture
def old(store: Store) -> Store:
    """A shard of the schema before this one, with ended jobs."""
    shards.store("default")
    jobs = [NewJob(id=new_id(), task="t", tenant="acme", payload=b"{}", fingerprint="f" * 16) for _ in range(ENDED)]
    store.enqueue(jobs)
    leased = store.check_and_lease("w.1", 1, want=ENDED, begin=ENDED, lease_ms=30_000).jobs
    store.complete([Completed(id=job.id, attempts=1, run_ms=1, result=b"42") for job in leased])
    for job in jobs:
        store.client.set(store.keys[f"result:{job.id}"], OLD + b"42")
    stamp(store, "0")
    return store


def stamp(store: Store, schema: str) -> None:
    store.client.hset(store.keys["conf"], "schema", schema)


def results(store: Store) -> set[bytes]:
    return {store.client.get(key) for key in store.client.scan_iter(store.keys["result:*"])}  # type: ignore[misc]  # redis-py has one type for sync and async


def conf(store: Store) -> dict[bytes, bytes]:
    return store.client.hgetall(store.keys["conf"])  # type: ignore[return-value]  # redis-py has one type for sync and async


def run(store: Store, batch: int = 10) -> Iterator[Progress]:
    return upgrades.convert(store.client, store.keys, upgrades.plan(store.client, store.keys), batch=batch)


def ductor(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", "upgrade", *arguments, stdout=out)
    return out.getvalue()


def test_nothing_needs_converting(store: Store) -> None:
    assert "Nothing to convert" in ductor()
    shards.store("default").register("w.1", {}, 1000)
    assert "Nothing to convert: every shard has schema 1" in ductor("--dry-run")


def test_a_shard_of_the_schema_before_is_converted(old: Store, converter: Converter) -> None:
    said = ductor()
    assert "default: schema 0 → 1: results without a prefix" in said
    assert f"default: {ENDED} records converted to schema 1 done" in said
    assert "1 pool converted." in said
    assert results(old) == {b"42"}
    assert conf(old) == {b"schema": b"1"}
    assert "Nothing to convert" in ductor()


def test_a_dry_run_changes_nothing(old: Store, converter: Converter) -> None:
    said = ductor("--dry-run")
    assert "results without a prefix" in said
    assert "1 pool to convert; nothing was changed." in said
    assert conf(old) == {b"schema": b"0"}
    assert results(old) == {OLD + b"42"}
    stamp(old, "1")


def test_it_goes_in_batches_and_everybody_else_waits_meanwhile(old: Store, converter: Converter) -> None:
    steps = run(old)
    first = next(steps)
    assert not first.done
    assert first.converted < ENDED
    with pytest.raises(Upgrading, match="converted from schema 0 to 1"):
        old.promote_due()
    last = list(steps)[-1]
    assert (last.done, last.converted) == (True, ENDED)
    old.promote_due()


def test_interrupted_it_goes_on_where_it_stopped(
    old: Store, converter: Converter, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = run(old)
    first = next(steps)
    steps.close()  # type: ignore[attr-defined]  # the narrower type is known here alone
    assert upgrades.plan(old.client, old.keys).interrupted

    began: list[str] = []

    def noted(client: redis.Redis, keys: ShardKeys, cursor: str, limit: int) -> Step:
        began.append(cursor)
        return old_results(client, keys, cursor, limit)

    monkeypatch.setitem(upgrades.CONVERTERS, "0", Converter(source="0", target="1", title=converter.title, batch=noted))
    with pytest.raises(CommandError, match="Another `ductor upgrade` is converting this shard"):
        ductor()
    old.client.hset(old.keys["conf"], "upgrader_until", 1)  # the first one died some time ago
    assert "it goes on where it stopped" in ductor()
    assert began[0] not in ("", "0"), "not from the beginning"
    assert first.converted < ENDED
    assert results(old) == {b"42"}
    assert conf(old) == {b"schema": b"1"}


def test_one_that_was_taken_for_dead_stops(old: Store, converter: Converter) -> None:
    slow = run(old)
    next(slow)
    old.client.hset(old.keys["conf"], "upgrader_until", 1)
    other = run(old)
    next(other)
    with pytest.raises(StoreError, match="took this shard over"):
        next(slow)
    list(other)
    assert conf(old) == {b"schema": b"1"}


def test_several_steps_are_taken_one_after_another(old: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(client: redis.Redis, keys: ShardKeys, cursor: str, limit: int) -> Step:
        return Step(cursor="", converted=0)

    monkeypatch.setattr(scripts, "SCHEMA", "2")
    for source, target, batch in (("0", "1", old_results), ("1", "2", nothing)):
        step = Converter(source=source, target=target, title=f"to {target}", batch=batch)
        monkeypatch.setitem(upgrades.CONVERTERS, source, step)
    said = ductor()
    assert said.index("0 → 1") < said.index("1 → 2")
    assert conf(old) == {b"schema": b"2"}
    monkeypatch.undo()
    stamp(old, "1")


def test_a_newer_shard_is_refused_with_advice(old: Store, converter: Converter) -> None:
    shards.store("mail").register("w.1", {}, 1000)
    stamp(shards.store("mail"), "2")
    with pytest.raises(CommandError, match=r"schema 2, and this release knows 1 at most: this process is too old"):
        ductor()
    assert conf(old) == {b"schema": b"0"}, "nothing of the others was touched"
    stamp(old, "1")


def test_an_upgrade_to_a_newer_schema_is_not_gone_on_with(old: Store, converter: Converter) -> None:
    stamp(old, "1>2")
    with pytest.raises(SchemaMismatch, match="this process is too old"):
        upgrades.plan(old.client, old.keys)
    stamp(old, "1")


def test_a_shard_too_old_for_this_release_is_refused(old: Store) -> None:
    with pytest.raises(CommandError, match="run `ductor upgrade` of a release between them first"):
        ductor()
    stamp(old, "1")


@pytest.mark.parametrize(
    ("schema", "advice"),
    [("0", "run `manage.py ductor upgrade`"), ("7", "this process is too old"), ("x", "this process is too old")],
)
def test_the_refusal_says_who_is_too_old(store: Store, schema: str, advice: str) -> None:
    stamp(store, schema)
    with pytest.raises(SchemaMismatch, match=advice):
        store.promote_due()
    stamp(store, "1")


def test_a_release_works_on_the_schema_before_its_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.register("w.1", {}, 1000)
    assert conf(store) == {b"schema": b"1"}
    monkeypatch.setattr(scripts, "SCHEMA", "2")
    monkeypatch.setattr(scripts, "EARLIER", ("1",))
    store.register("w.1", {}, 1000)
    assert conf(store) == {b"schema": b"1"}, "the shard keeps its own until it is converted"
    store.client.delete(store.keys["conf"])
    store.register("w.1", {}, 1000)
    assert conf(store) == {b"schema": b"2"}, "a new shard has the new one"
    monkeypatch.setattr(scripts, "SCHEMA", "12")
    monkeypatch.setattr(scripts, "EARLIER", ("11",))
    for schema in ("1", "2"):
        stamp(store, schema)
        with pytest.raises(SchemaMismatch):
            store.register("w.1", {}, 1000)
    monkeypatch.undo()
    stamp(store, "1")
