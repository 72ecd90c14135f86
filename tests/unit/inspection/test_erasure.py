"""All that is kept of a tenant's work goes, in every pool and table; nobody else's does."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from django.core.management import CommandError, call_command

from queueapp.errors import InvalidOption, StoreUnavailable
from queueapp.inspection.erasure import EVERY, Erasure, erase, extent
from queueapp.inspection.jobs import find_jobs
from queueapp.models import DeadLetterInspection, OutboxEntry, Pool, Schedule, Tenant, TenantLimits
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.records import Completed
from queueapp.store.store import Store
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

    erase("acme", progress=comes)
    assert extent("acme").number == 1


def test_what_ends_meanwhile_is_found(scene: Scene) -> None:
    Pool.objects.create(name="default")
    scene.end(1)
    scene.add(1)
    running = list(scene.lease())

    def ends(_: object) -> None:
        while running:
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


def test_what_was_on_its_way_is_erased_where_it_arrives(scene: Scene) -> None:
    for name in ("default", "other"):
        Pool.objects.create(name=name)
    ids = scene.add(2)
    shards.store("default").depart(scene.inner(ids), f"{shards.keys('other').code}.0")
    assert extent("acme").number == 0
    assert erase("acme").places == {
        "pool default": 2, "pool other": 2, "outbox default": 0, "records of dead letters": 0, "schedules": 0,
    }  # fmt: skip
    assert find_jobs(ids) == []


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


def test_rows_go_before_the_pools_to_which_they_would_send(others: list[str]) -> None:
    places: list[str] = []
    erase("acme", progress=lambda so_far: places.append(list(so_far.places)[-1]))
    assert places.index("outbox default") < places.index("pool default")
    assert places.index("schedules") < places.index("pool default")
