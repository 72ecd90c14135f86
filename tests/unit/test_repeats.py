"""Repetition in logs: told at once, then counted; and where it is used, an outage makes one line, not thousands."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from queueapp import enqueue_many, repeats
from queueapp.producer import outbox
from queueapp.producer.relaying import relay
from queueapp.repeats import Repeats
from queueapp.worker import attempt
from queueapp.worker.faults import Faults
from queueapp.worker.line import Line
from queueapp.worker.slots import Held
from tests.producing import add
from tests.unit.fake_store import FakeStore, leased

NOWHERE = "redis://127.0.0.1:1/0"


def test_the_first_is_told_and_the_others_with_the_next() -> None:
    now = [100.0]
    kinds = Repeats(clock=lambda: now[0])
    assert [kinds.due("a", 3), kinds.due("a", 4), kinds.due("a"), kinds.due("b")] == [3, 0, 0, 1]
    now[0] += repeats.EVERY_S
    assert [kinds.due("a"), kinds.due("a")] == [6, 0]
    kinds.forget()
    assert kinds.due("a") == 1


def test_it_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "KINDS_MOST", 3)
    kinds = Repeats()
    assert [kinds.due(number) for number in range(10)] == [1] * 10
    assert len(kinds._told) <= 3


@pytest.mark.django_db(transaction=True)
def test_an_outage_is_one_line_of_site_and_relay(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "queueapp")
    with override_settings(DUCTOR={**settings.DUCTOR, "REDIS_URL": NOWHERE}):
        outbox.forget()
        for _ in range(3):
            with transaction.atomic():
                enqueue_many(add.bind(number) for number in range(5))
        [record] = caplog.records
        assert (record.levelno, record.jobs, record.code) == (logging.ERROR, 5, "store_unavailable")  # type: ignore[attr-defined]  # what `extra` gave it
        caplog.clear()
        for _ in range(2):
            outbox.rows("default").update(due="2020-01-01T00:00:00Z")
            assert relay().put_off == 15
        [record] = caplog.records
        assert (record.levelno, record.put_off) == (logging.WARNING, 15)  # type: ignore[attr-defined]  # what `extra` gave it
        assert "cannot be reached" in record.getMessage()


def test_a_deploy_is_one_line_for_each_unknown_task(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "unknown", Repeats())
    for task in ("shop.tasks.new", "shop.tasks.new", "shop.tasks.newer"):
        line = Line("default", FakeStore(), "me", lease_ms=30_000)
        assert attempt.run_one(Held(leased(task=task), line), Faults()) is not None
    told = [record.task for record in caplog.records if record.levelno >= logging.WARNING]  # type: ignore[attr-defined]  # what `extra` gave it
    assert told == ["shop.tasks.new", "shop.tasks.newer"]
