"""What goes wrong in sending after commit is told, and costs the host nothing of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.test.utils import override_settings

from queueapp.compat import task_enqueued
from queueapp.errors import IdempotencyConflict, NotSentYet, StoreUnavailable
from tests.producing import add

NOWHERE = "redis://localhost:1/0"


class TestAfterCommit:
    pytestmark = pytest.mark.django_db(transaction=True)

    def test_a_store_that_is_away_is_logged_and_signalled(
        self, failures: list[dict[str, Any]], caplog: pytest.LogCaptureFixture, settings: Any
    ) -> None:
        later: list[str] = []
        away = {**settings.DUCTOR, "REDIS_URL": NOWHERE, "ON_COMMIT_FAILURE": "log"}
        with override_settings(DUCTOR=away), transaction.atomic():
            result = add.enqueue(1)
            transaction.on_commit(lambda: later.append("ran"))

        [failure] = failures
        assert failure["task_result"] is result
        assert isinstance(failure["error"], StoreUnavailable)
        assert failure["payload"] == b'{"a":[1]}'
        [record] = [record for record in caplog.records if record.name == "queueapp.producer.client"]
        assert (record.levelno, record.job_id, record.code) == (logging.ERROR, result.id, "store_unavailable")  # type: ignore[attr-defined]  # what `extra` gave it
        assert (result.state, later) == ("deferred", ["ran"])
        with pytest.raises(NotSentYet, match="not accepted after commit"):
            result.wait()

    def test_a_conflict_comes_too_late_for_the_caller(self, failures: list[dict[str, Any]]) -> None:
        keyed = add.using(idempotency_key="k")
        keyed.enqueue(1)
        with transaction.atomic():
            keyed.enqueue(2)

        assert isinstance(failures[0]["error"], IdempotencyConflict)

    def test_a_key_that_stands_for_another_job_gives_its_id(self) -> None:
        keyed = add.using(idempotency_key="k")
        first = keyed.enqueue(1)
        with transaction.atomic():
            second = keyed.enqueue(1)
            assert second.id != first.id
        assert (second.id, second.outcome) == (first.id, "exists")

    def test_a_defect_in_sending_does_not_reach_the_host(
        self, failures: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(jobs: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr("queueapp.producer.client.send_each", broken)
        later: list[str] = []
        with transaction.atomic():
            result = add.enqueue(1)
            transaction.on_commit(lambda: later.append("ran"))

        assert "a defect" in str(failures[0]["error"])
        assert (later, result.outbox) == (["ran"], "default")

    def test_a_callback_that_raises_costs_the_host_none_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`robust=True`: should there be a defect even in what keeps defects away."""

        def broken(*_: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr("queueapp.producer.client.send_late", broken)
        later: list[str] = []
        with transaction.atomic():
            add.enqueue(1)
            transaction.on_commit(lambda: later.append("ran"))

        assert later == ["ran"]

    def test_receivers_that_raise_cost_nobody_the_job(self, waiting: Callable[[], int]) -> None:
        def receive(**_: Any) -> None:
            raise RuntimeError("a receiver")

        task_enqueued.connect(receive)
        try:
            assert add.enqueue(1).outcome == "enqueued"
        finally:
            task_enqueued.disconnect(receive)
        assert waiting() == 1
