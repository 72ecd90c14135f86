"""Whose the work of a run is, whoever moves it on: a wake-up is nobody's job, and a step may be another tenant's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from flows import RunHandle, flow, run_finished, sleep, step
from queueapp import task
from queueapp.producer.tenancy import current_tenant
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.integration.conftest import until
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)

SEEN: list[str | None] = []
ENTERED: list[str] = []


@task
def whose() -> str | None:
    return current_tenant()


@flow
def naps(seconds: float) -> object:
    first = step(whose)
    sleep(seconds, after=first)
    return first


@flow
def ends_elsewhere() -> object:
    return step(whose, tenant="globex")


@contextmanager
def schema(name: str) -> Iterator[None]:
    ENTERED.append(name)
    if name.startswith("_"):
        raise LookupError(f"no schema {name}")
    yield


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    def hear(run: Any, **_: Any) -> None:
        SEEN.append(current_tenant())

    SEEN.clear()
    ENTERED.clear()
    run_finished.connect(hear, weak=False)
    yield
    run_finished.disconnect(hear)


def is_through(run: RunHandle) -> bool:
    work()
    return run.refresh().state == "completed"


@pytest.mark.parametrize(("declared", "given", "output"), [(naps, [0.01], "acme"), (ends_elsewhere, [], "globex")])
def test_who_hears_of_its_end_is_in_the_runs_tenant(
    declared: Any, given: list[float], output: str, store: Store
) -> None:
    run = declared.using(tenant="acme").start(*given)
    until(lambda: is_through(run))
    assert (run.output, SEEN) == (output, ["acme"])


def test_the_hosts_context_is_entered_for_steps_and_not_for_wake_ups(store: Store) -> None:
    with override_settings(DUCTOR={**settings.DUCTOR, "TENANT_CONTEXT": schema}):
        run = naps.using(tenant="acme").start(0.01)
        until(lambda: is_through(run))
    assert ENTERED == ["acme"]


def test_wake_ups_are_the_systems(store: Store, reads: Reads) -> None:
    run = naps.using(tenant="acme").start(600)
    work()
    assert run.refresh().state == "running"
    assert "_ductor" in dict(reads.overview().tenants)
