"""`immediate()`: `enqueue` runs the body at once, along the worker's own path, without any server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils import timezone

from queueapp import enqueue_many, tenant
from queueapp.compat import TaskResultStatus, task_enqueued, task_finished, task_started
from queueapp.errors import InvalidOption
from queueapp.producer.results import DuctorResult
from queueapp.testing import adrain, drain, immediate
from tests.host.shop import (
    asks_again,
    broken,
    count_users,
    flaky,
    for_ever,
    in_one_block,
    interrupted,
    parent,
    ran,
    reports,
    send_invoice,
    typed,
)

pytestmark = pytest.mark.compat

entered: list[str] = []


@contextmanager
def schema_of(tenant_id: str) -> Iterator[None]:
    entered.append(tenant_id)
    yield


class TestTheHandle:
    def test_it_is_filled_as_if_a_worker_had_run_the_job(self) -> None:
        with immediate():
            result = send_invoice.enqueue(1, copies=("a",))  # type: ignore[arg-type]  # wrong on purpose

        assert (result.status, result.state, result.outcome) == (TaskResultStatus.SUCCESSFUL, "ended", "completed")
        assert result.return_value == {"order": 1, "copies": ["a"]}, "through JSON: a tuple is a list"
        assert (result.attempts, result.errors) == (1, [])
        assert result.finished_at is not None
        assert result.wait(timeout=0) is result

    def test_a_body_that_raises_fails_the_job_and_not_the_caller(self) -> None:
        with immediate() as jobs:
            result = broken.enqueue("no such order")

        assert (result.status, result.state, result.reason) == (TaskResultStatus.FAILED, "dead", "error")
        assert result.errors[0].exception_class_path == "builtins.LookupError"
        assert "no such order" in result.errors[0].traceback
        assert isinstance(jobs[0].error, LookupError)

    def test_it_is_raised_at_the_end_where_that_is_asked_for(self) -> None:
        with pytest.raises(LookupError, match="no such order"), immediate(raise_on_failure=True):  # noqa: PT012  (the failure may come at the end of the block)
            broken.enqueue("no such order")
            send_invoice.enqueue(1)
        assert [what for _, what in ran] == ["broken", 1]

    def test_an_error_of_the_test_itself_comes_first(self) -> None:
        with pytest.raises(ZeroDivisionError), immediate(raise_on_failure=True):  # noqa: PT012  (the failure may come at the end of the block)
            broken.enqueue()
            _ = 1 / 0

    def test_attempts_follow_each_other_without_waiting(self) -> None:
        with immediate():
            result = flaky.enqueue(2)

        assert (result.return_value, result.attempts) == ("done", 3)
        assert [error.exception_class_path for error in result.errors] == ["builtins.ConnectionError"] * 2

    def test_attempts_end_with_max_attempts(self) -> None:
        with immediate():
            result = flaky.enqueue(100)

        assert (result.state, len(ran)) == ("dead", 3)

    def test_a_retry_that_was_asked_for(self) -> None:
        with immediate():
            assert asks_again.enqueue().status is TaskResultStatus.SUCCESSFUL
        assert len(ran) == 2

    def test_ctrl_c_is_nobodys_failure(self) -> None:
        with pytest.raises(KeyboardInterrupt), immediate():
            interrupted.enqueue()

    def test_it_can_be_read_again_by_its_id(self) -> None:
        with immediate():
            result = send_invoice.enqueue(1)
            assert send_invoice.get_result(result.id).return_value == result.return_value

    def test_typed_values_come_as_they_were(self) -> None:
        ids = (uuid.uuid4(),)
        with immediate():
            result = typed.enqueue(timezone.now(), ids)
        assert ran == [("default", ids)]
        assert result.return_value == ids

    def test_the_context_is_the_workers(self) -> None:
        with immediate():
            result = reports.enqueue()
            result.refresh()
        assert result.return_value == 1
        assert result.progress is not None
        assert result.progress["done"] == 1


class TestTenants:
    def test_the_tenant_is_entered_and_children_stay_with_it(self) -> None:
        with immediate() as jobs, tenant("acme"):
            parent.enqueue(2)

        assert ran == [("acme", "parent"), ("acme", 0), ("acme", 1)]
        assert {job.tenant for job in jobs} == {"acme"}

    def test_tenant_context_is_entered(self, settings: Any) -> None:
        entered.clear()
        with (
            override_settings(DUCTOR={**settings.DUCTOR, "TENANT_CONTEXT": "tests.host.test_immediate.schema_of"}),
            immediate(),
        ):
            send_invoice.using(tenant="acme").enqueue(1)
        assert entered == ["acme"]


class TestHowItRuns:
    def test_signals_come_in_order(self) -> None:
        seen: list[str] = []
        receivers = {
            name: lambda name=name, **_: seen.append(name)
            for name in ("task_enqueued", "task_started", "task_finished")
        }
        signals = {"task_enqueued": task_enqueued, "task_started": task_started, "task_finished": task_finished}
        for name, receive in receivers.items():
            signals[name].connect(receive)
        with immediate():
            send_invoice.enqueue(1)
        for name, receive in receivers.items():
            signals[name].disconnect(receive)

        assert seen == ["task_enqueued", "task_started", "task_finished"]

    def test_bulk_runs_too(self) -> None:
        with immediate():
            outcomes = enqueue_many([send_invoice.bind(1), broken.bind()])

        assert [outcome.result.status.name for outcome in outcomes if outcome.result] == ["SUCCESSFUL", "FAILED"]

    def test_what_is_due_later_does_not_run_until_it_is_asked_for(self) -> None:
        with immediate() as jobs:
            result = send_invoice.using(run_after=timezone.now() + timedelta(days=1)).enqueue(1)
            assert (ran, result.state) == ([], "scheduled")
            assert len(drain()) == 0
            drained = drain(include_scheduled=True)
            assert ([done.return_value["order"] for done in drained.results], len(jobs)) == ([1], 1)

    def test_a_task_that_enqueues_itself_is_stopped_by_python(self) -> None:
        with immediate():
            assert for_ever.enqueue().status is not None
        assert len(ran) > 10

    def test_an_idempotency_key_runs_its_job_once(self) -> None:
        with immediate():
            first = send_invoice.using(idempotency_key="k").enqueue(1)
            second = send_invoice.using(idempotency_key="k").enqueue(1)

        assert (len(ran), second.id, second.outcome, second.return_value) == (1, first.id, "exists", first.return_value)


@pytest.mark.django_db(transaction=True)
class TestTransactions:
    def test_the_body_runs_after_commit(self) -> None:
        with immediate():
            with transaction.atomic():
                result = send_invoice.enqueue(1)
                assert (ran, result.state) == ([], "deferred")
            assert result.return_value == {"order": 1, "copies": None}

    def test_a_rollback_takes_it_along(self, client: Client) -> None:
        with immediate():
            client.get("/fails/1/")
        assert ran == []

    def test_a_failure_after_commit_is_raised_at_the_end(self) -> None:
        with pytest.raises(LookupError), immediate(raise_on_failure=True), transaction.atomic():
            broken.enqueue()

    def test_blocks_inside_bodies_defer_as_well(self) -> None:
        with immediate():
            in_one_block.enqueue(5)
        assert [what for _, what in ran] == [5, 5]


@pytest.mark.django_db
class TestConnections:
    def test_queries_of_bodies_are_seen_by_the_test(self) -> None:
        with immediate(), CaptureQueriesContext(connection) as queries:
            count_users.enqueue()
        assert any("COUNT" in query["sql"] for query in queries)

    def test_an_asynchronous_body_uses_the_connection_of_the_test(self, django_user_model: Any) -> None:
        django_user_model.objects.create(username="ada")

        with immediate():
            assert count_users.enqueue().return_value == 1


class TestAsynchronousTests:
    def test_bodies_of_both_kinds(self) -> None:
        async def main() -> tuple[DuctorResult, DuctorResult]:
            first = await send_invoice.aenqueue(1)
            later = await send_invoice.using(run_after=timezone.now() + timedelta(days=1)).aenqueue(2)
            await adrain(include_scheduled=True)
            await later.arefresh()
            return first, later

        with immediate():
            first, later = asyncio.run(main())
        assert (first.return_value["order"], later.return_value["order"]) == (1, 2)

    def test_a_synchronous_enqueue_of_an_asynchronous_body_says_what_to_write(self) -> None:
        async def main() -> None:
            with pytest.raises(InvalidOption, match="aenqueue"):
                count_users.enqueue()

        with immediate():
            asyncio.run(main())
