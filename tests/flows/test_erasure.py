"""A tenant that is erased takes its runs along, and nobody else's."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command

from flows import erasure, models
from tests.flows import host
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    host.RAN.clear()
    host.FAIL.clear()


def erase(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", "erase", "acme", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_its_runs_go_with_all_that_is_theirs(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "SHARE", 2)
    for _ in range(3):
        host.fan.using(tenant="acme").start(2)
    waits = host.patient.using(tenant="acme").start(1)
    waits.send_event("go", {"more": 1})
    other = host.chain.using(tenant="zeta").start(1)
    assert "runs of flows: 4" in erase("--dry-run")
    assert models.Run.objects.count() == 5
    assert "runs of flows: 4" in erase("--yes-erase", "acme")
    assert [run.id for run in models.Run.objects.all()] == [other.id]
    assert set(models.StepRun.objects.values_list("run_id", flat=True)) == {other.id}
    for kind in (models.Event, models.ItemRun):
        assert not kind._default_manager.exists()
    work()
    assert other.refresh().output == 12, "what is left of them in the queue harms nobody"
    assert set(host.RAN) == {f"{other.id}/add", f"{other.id}/second"}


def test_a_step_that_runs_meanwhile_ends_unheard(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = host.chain.using(tenant="acme").start(1)
    real = host._note

    def note() -> None:
        real()
        erase("--yes-erase", "acme")

    monkeypatch.setattr(host, "_note", note)
    work()
    assert not models.Run.objects.exists()
    assert set(host.RAN) == {f"{run.id}/add"}
