"""All that is kept of a tenant's work goes, in every pool and table; nobody else's does."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueapp.errors import InvalidOption, StoreUnavailable
from queueapp.inspection.erasure import EVERY, Erasure, erase, extent
from queueapp.inspection.jobs import find_jobs
from queueapp.models import DeadLetterInspection, OutboxEntry, Pool, Schedule, Tenant, TenantLimits
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.ids import new_id
from queueapp.store.records import Completed, Failed, NewJob
from queueapp.store.store import Store
from queueapp.store.transit import deliver
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def others(scene: Scene) -> list[str]:
    """What another tenant has, everywhere; the same of acme beside it."""
    pool = Pool.objects.create(name="default")
    Pool.objects.create(name="other")
    kept = []
    for tenant in ("acme", "globex"):
        kept = [*scene.end(2, tenant=tenant), *scene.bury(1, tenant=tenant)]
        scene.add(1, tenant=tenant)
        scene.lease()
        kept += scene.add(3, tenant=tenant)
        fields = {"pool": "default", "tenant": tenant, "task": "shop.tasks.pay"}
        OutboxEntry.objects.create(
            **fields, job_id=f"id.{tenant}", job={}, payload=b"", due=datetime(2026, 1, 1, tzinfo=UTC)
        )
        DeadLetterInspection.objects.create(**fields, job_id="x", action="noted", note="about a person")
        for source in Schedule.Source:
            Schedule.objects.create(
                name=f"{tenant} {source}", task="shop.tasks.pay", tenant=tenant, every_seconds=60, source=source
            )
        TenantLimits.objects.create(pool=pool, tenant=Tenant.objects.create(key=tenant), weight=3)
    return kept


def ductor(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", "erase", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue().strip()


def test_every_place_is_counted_and_emptied(others: list[str]) -> None:
    there = {"pool default": 7, "pool other": 0, "outbox default": 1, "records of dead letters": 1, "schedules": 2}
    there["runs of flows"] = 0
    assert extent("acme").places == there
    assert extent("globex").places == there
    done = erase("acme")
    assert done.places == {place: number for place, number in there.items() if number or not place.startswith("pool")}
    assert extent("acme").number == 0
    assert extent("globex").places == there
    assert len(find_jobs(others)) == len(others)
    assert Schedule.objects.filter(tenant="acme").get().source == Schedule.Source.CODE
    assert TenantLimits.objects.count() == 2, "settings stay"
    assert shards.store("default").verify() == []


def test_what_comes_meanwhile_is_left_alone(others: list[str], scene: Scene) -> None:
    came: list[str] = []

    def comes(so_far: Erasure) -> None:
        if "pool default" in so_far.places and not came:
            came.extend(scene.add(1))

    done = erase("acme", progress=comes)
    assert extent("acme").number == 1
    assert done.left == {
        "jobs of the pool default that wait: they came meanwhile, or cannot be read and were not met yet": 1
    }


def test_what_ends_meanwhile_is_found(scene: Scene) -> None:
    Pool.objects.create(name="default")
    scene.add(1)
    running = list(scene.lease())
    scene.add(1)

    def ends(so_far: Erasure) -> None:
        while running and so_far.places.get("pool default"):
            job = running.pop()
            scene.store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=1, result=b"secret")])

    assert erase("acme", progress=ends).number == 2
    assert extent("acme").number == 0


def test_interrupted_the_same_again_does_the_rest(others: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(Store, "erase_traces", dies)
    with pytest.raises(StoreUnavailable):
        erase("acme")
    monkeypatch.undo()
    assert extent("acme").places["pool default"] == 0
    assert extent("acme").number == 0
    assert erase("acme").number == 0


@pytest.fixture
def other() -> Store:
    for name in ("default", "other"):
        Pool.objects.create(name=name)
    return shards.store("other")


def depart(scene: Scene, number: int, to: str = "") -> list[str]:
    """Jobs of acme on their way from `default` to `other`; their public ids."""
    ids = scene.add(number)
    words = scene.store.depart(scene.inner(ids), to or f"{shards.keys('other').code}.0")
    assert words == ["moving"] * number
    return ids


def test_what_is_on_its_way_is_counted_and_erased_where_it_is(scene: Scene, other: Store) -> None:
    ids, kept = depart(scene, 2), scene.add(1, tenant="globex")
    late = [(one.id, one.packed) for one in scene.store.departed().jobs if one.packed is not None]
    scene.store.depart(scene.inner(kept), f"{shards.keys('other').code}.0")
    assert extent("acme").places["pool default"] == 2
    done = erase("acme")
    assert (done.places["pool default"], done.places.get("pool other", 0), done.left) == (2, 0, {})
    assert find_jobs(ids) == []
    assert other.arrive(late) == ["exists", "exists"], "it was packed before"
    assert find_jobs(ids) == []
    assert len(find_jobs(kept)) == 1
    assert shards.reads("other").tenants(offset=0, count=9) == ([], 0)


def test_what_goes_where_nobody_knows_a_pool_is_erased_all_the_same(scene: Scene, other: Store) -> None:
    ids = depart(scene, 2, to="zzzzzz.0")
    assert erase("acme").places["pool default"] == 2
    assert find_jobs(ids) == []


def test_what_arrived_and_was_not_let_go_is_erased_in_both_pools(scene: Scene, other: Store) -> None:
    ids = depart(scene, 2)
    assert other.arrive([(one.id, one.packed or b"") for one in scene.store.departed().jobs]) == ["arrived"] * 2
    done = erase("acme")
    assert (done.places["pool default"], done.places["pool other"]) == (2, 2)
    assert find_jobs(ids) == []
    assert other.verify() == []


def test_what_moved_jobs_left_behind_is_counted_and_goes(scene: Scene, other: Store) -> None:
    ids = depart(scene, 2)
    assert deliver("default", scene.store) == 2
    assert extent("acme").places["pool default"] == 2
    assert erase("acme").places["pool default"] == 2
    assert find_jobs(ids) == []
    assert not scene.store.client.exists(scene.keys["stubs"])


@pytest.mark.parametrize("mode", ["", "bar", "barred"])
def test_who_dies_between_two_pools_leaves_it_to_the_next(
    scene: Scene, other: Store, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Before he asks it back, before the other pool is told, before it goes."""
    ids, act = depart(scene, 2), Store.erase

    def dies(self: Store, tenant: str, ids: Sequence[str], *, mode: Any = "") -> list[str]:
        if mode == at:
            raise StoreUnavailable("away")
        return act(self, tenant, ids, mode=mode)

    at = mode
    with monkeypatch.context() as patch:
        patch.setattr(Store, "erase", dies)
        with pytest.raises(StoreUnavailable):
            erase("acme")
    late = [(job_id, b"") for job_id in scene.inner(ids)]
    assert {job.state for job in find_jobs(ids)} == {"moving"}, late
    assert erase("acme").places["pool default"] == 2
    assert (find_jobs(ids), extent("acme").number) == ([], 0)


def test_what_is_moved_to_a_pool_that_was_gone_through_is_found_there(scene: Scene, other: Store) -> None:
    """Pools are gone through by name, and the job goes from the later to the earlier one."""
    here = scene.add(1)
    [job_id] = [new_id()]
    other.enqueue([NewJob(id=job_id, fingerprint="f" * 16, task="shop.tasks.pay", tenant="acme", payload=b"{}")])
    moved: list[str] = []

    def moves(so_far: Erasure) -> None:
        if so_far.places.get("pool default") and not moved:
            moved.extend(other.depart([job_id], f"{shards.keys('default').code}.0"))
            assert deliver("other", other) == 1

    erase("acme", progress=moves)
    assert moved == ["moving"]
    assert find_jobs([*here, scene.keys.public_id(job_id), shards.keys("other").public_id(job_id)]) == []
    assert extent("acme").number == 0


def test_what_nobody_can_read_is_erased_or_told(others: list[str], scene: Scene) -> None:
    """Both were met and set aside: one of which its run says whose it is, and one of which nothing does."""
    known, unknown = scene.inner([*scene.add(1, max_attempts=2), *scene.add(1)])
    [leased] = [job for job in scene.lease() if job.id == known]
    scene.store.fail([Failed(id=known, attempts=leased.attempts, run_ms=1, error=b"{}", retry_ms=0)])
    scene.store.promote_due()
    client = scene.store.client
    for job_id in (known, unknown):
        client.set(scene.keys.job(job_id), "no row of ours")
    client.delete(scene.keys.run(unknown))
    client.zadd(scene.keys["active"], {unknown: 1})
    scene.store.partition_recover()
    scene.lease()
    assert client.smembers(scene.keys["quarantine"]) == {known.encode(), unknown.encode()}
    why = "jobs of the pool default that nobody can read, so that nothing says whose they are (`quarantine`)"
    there = extent("acme")
    assert (there.places["pool default"], there.left) == (8, {why: 1})
    done = erase("acme")
    assert (done.places["pool default"], done.left) == (8, {why: 1})
    assert client.smembers(scene.keys["quarantine"]) == {unknown.encode()}
    assert not client.exists(scene.keys.job(known), scene.keys.run(known))
    assert f"Left: 1 {why}." in ductor("acme", "--dry-run")
    assert f"Left: 1 {why}." in ductor("acme", "--yes-erase", "acme")
    client.delete(scene.keys.job(unknown), scene.keys["quarantine"])
    for worker in client.scan_iter(f"{scene.keys['held:']}*"):
        client.srem(worker, unknown)


def test_the_command_asks_for_the_key(others: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = "11 jobs and rows (outbox default: 1, records of dead letters: 1, schedules: 2, pool default: 7)"
    assert ductor("acme", "--dry-run") == f"Would erase {words}. Nothing was changed."
    asked: list[str] = []

    def types(question: str) -> str:
        asked.append(question)
        return "globex"

    monkeypatch.setattr("builtins.input", types)
    with pytest.raises(CommandError, match="'globex' is not the key of the tenant"):
        ductor("acme")
    assert words in asked[0]
    assert ductor("acme", "--yes-erase", "acme").startswith(f"Erased {words}. Its settings stay")
    assert State.MOVING not in EVERY


@pytest.mark.parametrize("wrong", ["", " ", "a|b", "_all"])
def test_what_is_no_key_of_a_tenant_is_refused(others: list[str], wrong: str) -> None:
    """An empty one, as an unset variable of a shell gives, would be no condition at all."""
    for act in (extent, erase):
        with pytest.raises(InvalidOption, match="no key of a tenant"):
            act(wrong)
    assert Schedule.objects.count() == 6
    assert len(find_jobs(others)) == len(others)


def test_rows_that_come_while_the_pools_are_gone_through_go_too(others: list[str]) -> None:
    """A transaction that had begun before, say. No relay has sent them by then."""

    late = [
        OutboxEntry(
            pool="default",
            tenant="acme",
            task="shop.tasks.pay",
            job_id="late.acme",
            job={},
            payload=b"",
            due=datetime(2026, 1, 1, tzinfo=UTC),
        )
    ]

    def commits(so_far: Erasure) -> None:
        if so_far.places.get("pool default") and late:
            late.pop().save()

    assert erase("acme", progress=commits).places["outbox default"] == 2
    assert not OutboxEntry.objects.filter(tenant="acme").exists()
    assert OutboxEntry.objects.filter(tenant="globex").exists()


def test_rows_go_before_the_pools_to_which_they_would_send(others: list[str]) -> None:
    places: list[str] = []
    erase("acme", progress=lambda so_far: places.append(list(so_far.places)[-1]))
    assert places.index("outbox default") < places.index("pool default")
    assert places.index("schedules") < places.index("pool default")
