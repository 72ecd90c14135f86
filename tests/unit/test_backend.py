"""The backend as django.tasks sees it: conformance with its contract, on whatever Django there is."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asgiref.sync
import pytest
from django.core.checks import run_checks
from django.test.utils import override_settings

from queueapp.backend import DuctorBackend
from queueapp.compat import (
    NATIVE,
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from queueapp.errors import (
    IdempotencyConflict,
    PayloadTooLarge,
    StoreUnavailable,
    UnknownPool,
    UnknownTenant,
    UnserialisableArgument,
)
from queueapp.models import Pool, Tenant
from queueapp.producer import rows
from queueapp.producer.results import DuctorResult
from queueapp.producer.task import DuctorTask, unchecked
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.producing import add, add_async, chosen

pytestmark = pytest.mark.compat

OURS = {"BACKEND": "queueapp.backend.DuctorBackend"}


class HostBackend(DuctorBackend):
    """A host's own backend on top of ours."""


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    rows.forget()
    yield
    rows.forget()


class TestContract:
    def test_it_says_what_it_can(self) -> None:
        backend = task_backends["default"]

        assert isinstance(backend, DuctorBackend)
        assert backend.task_class is DuctorTask
        assert backend.supports_defer
        assert backend.supports_async_task
        assert backend.supports_get_result
        assert backend.supports_priority

    def test_making_one_touches_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("I/O in __init__")

        with override_settings(DUCTOR={"REDIS_URL": 5}), monkeypatch.context() as patch:
            patch.setattr(socket, "socket", refuse)
            DuctorBackend("default", {"BACKEND": "x"})

    def test_neither_the_class_nor_an_instance_imports_the_models(self) -> None:
        """`@task` makes one while the apps are loaded, before there may be models."""
        made = "queueapp.backend.DuctorBackend('default', {'BACKEND': 'x', 'QUEUES': ['a']})"
        program = (
            "import sys; from django.conf import settings; settings.configure(); import queueapp.backend; "
            f"{made}; import queueapp.producer.bulk; assert 'queueapp.models' not in sys.modules"
        )
        subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)

    def test_there_is_one_per_thread(self) -> None:
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.append(task_backends["default"]))
        thread.start()
        thread.join()

        assert seen[0] is not task_backends["default"]

    @pytest.mark.skipif(not NATIVE, reason="the package builds another class")
    def test_a_task_of_django_tasks_runs_unchanged(self, store: Store, reads: Reads) -> None:
        from django.tasks import task

        made = task(priority=5)(add.func)
        result = made.enqueue(1, b=2)

        assert isinstance(made, DuctorTask)
        assert reads.overview().waiting == 1
        assert (result.task.priority, result.args, result.kwargs) == (5, [1], {"b": 2})

    def test_a_plain_task_may_be_sent_through_our_alias(self, store: Store) -> None:
        plain = Task(func=add.func, priority=1, backend="default", queue_name="default", run_after=None)

        assert plain.enqueue(1).status == TaskResultStatus.READY

    @pytest.mark.django_db  # checks of fields ask SQLite what it can
    def test_checks_of_the_alias(self) -> None:
        with override_settings(TASKS={"default": {**OURS, "QUEUES": ["No Name", "ok"], "OPTIONS": {"x": 1}}}):
            faults = task_backends["default"].check()

        assert [(fault.id, fault.level >= 40) for fault in faults] == [("queueapp.E003", True), ("queueapp.E004", True)]
        assert "No Name" in faults[0].msg
        assert task_backends["default"].check() == []
        assert [message for message in run_checks() if message.id == "queueapp.E003"] == []


class TestValidation:
    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_a_task_is_validated_again_when_it_is_enqueued(self, asynchronous: bool) -> None:
        wrong = unchecked(add, priority=101)
        with pytest.raises(InvalidTask, match="whole number between -100 and 100"):
            asyncio.run(wrong.aenqueue(1)) if asynchronous else wrong.enqueue(1)

    def test_queues_bound_an_alias(self) -> None:
        with override_settings(TASKS={"default": {**OURS, "QUEUES": ["emails", "reports"]}}):
            assert replace(add, queue_name="emails").queue_name == "emails"
            assert replace(add, queue_name="default").queue_name == "default", "it always exists"
            with pytest.raises(UnknownPool, match=r"'mail' is not a known pool; known: default, emails, reports\. Add"):
                replace(add, queue_name="mail")

    @override_settings(USE_TZ=True)
    def test_a_naive_moment(self) -> None:
        with pytest.raises(InvalidTask, match="aware datetime"):
            add.using(run_after=datetime(2030, 1, 1))

    def test_an_unserialisable_argument_names_its_path(self) -> None:
        with pytest.raises(UnserialisableArgument, match=r"^args\[0\]\['when'\]: datetime\.datetime .*isoformat"):
            add.enqueue({"when": datetime.now(UTC)})

    def test_a_payload_that_is_too_large_names_both_sizes(self, settings: Any, reads: Reads) -> None:
        with override_settings(DUCTOR={**settings.DUCTOR, "MAX_PAYLOAD_BYTES": 100}):
            with pytest.raises(PayloadTooLarge, match=r"have 110 bytes as JSON; MAX_PAYLOAD_BYTES allows 100"):
                add.enqueue("x" * 100)
            add.enqueue("x" * 90)
        assert reads.overview().waiting == 1


@pytest.mark.django_db
class TestKnownPools:
    def test_an_unknown_pool_lists_the_known(self, reads: Reads) -> None:
        Pool.objects.create(name="from-a-row")
        with pytest.raises(UnknownPool, match=r"queue_name 'nowhere' is not a known pool; known: default, from-a-row"):
            add.using(queue_name="nowhere").enqueue(1)
        with pytest.raises(InvalidTask):
            add.using(queue_name="nowhere").enqueue(1)

    def test_a_row_makes_a_pool_known_at_once(self) -> None:
        made = add.using(queue_name="from-a-row")
        with pytest.raises(UnknownPool):
            made.enqueue(1)
        Pool.objects.create(name="from-a-row")

        assert made.enqueue(1).task.queue_name == "from-a-row"

    def test_a_known_pool_is_not_looked_up_each_time(self, django_assert_num_queries: Any) -> None:
        Pool.objects.create(name="from-a-row")
        made = add.using(queue_name="from-a-row")
        with django_assert_num_queries(1):
            made.enqueue(1)
            made.enqueue(1)
        with django_assert_num_queries(0):
            add.enqueue(1)

    def test_what_is_remembered_does_not_outlive_the_settings(self) -> None:
        row = Pool.objects.create(name="from-a-row")
        made = add.using(queue_name="from-a-row")
        shards.store("from-a-row").cancel([made.enqueue(1).id[-22:]])
        row.delete()
        with override_settings(TASKS={"default": OURS}), pytest.raises(UnknownPool):
            made.enqueue(1)

    def test_unknown_tenants_may_be_refused(self, settings: Any) -> None:
        with override_settings(DUCTOR={**settings.DUCTOR, "UNKNOWN_TENANTS": "reject"}):
            with pytest.raises(UnknownTenant, match="'acme' has no row"):
                add.using(tenant="acme").enqueue(1)
            Tenant.objects.create(key="acme")
            assert add.using(tenant="acme").enqueue(1).state == "pending"


class TestEnqueue:
    def test_the_row_says_what_the_task_says(self, store: Store, reads: Reads) -> None:
        result = chosen.using(tenant="acme", priority=9, max_crashes=2).enqueue()

        record = reads.job(result.id[-22:])
        assert record is not None
        assert (record.task, record.tenant, record.lane) == ("tests.producing.chosen", "acme", "mail")
        assert (record.priority, record.max_attempts, record.state) == (9, 4, State.PENDING)
        assert result.id.startswith(store.keys.public_id(""))
        assert len(result.id) < 64

    def test_only_a_backoff_that_the_task_does_not_declare_travels(self, store: Store, reads: Reads) -> None:
        declared, given = chosen.enqueue(), chosen.using(backoff=9).enqueue()

        payloads = [record.payload for record in reads.jobs([declared.id[-22:], given.id[-22:]]) if record]
        assert payloads == [b"{}", b'{"o":{"backoff":{"delay":9.0}}}']

    def test_a_moment_in_the_future_is_scheduled(self, store: Store, reads: Reads) -> None:
        moment = datetime.now(UTC) + timedelta(hours=1)
        result = add.using(run_after=moment).enqueue(1)

        record = reads.job(result.id[-22:])
        assert record is not None
        assert (record.state, record.due_ms) == (State.SCHEDULED, round(moment.timestamp() * 1000))
        assert result.state == "scheduled"
        assert result.status == TaskResultStatus.READY

    def test_a_moment_in_the_past_is_now(self, store: Store) -> None:
        assert add.using(run_after=datetime(2020, 1, 1, tzinfo=UTC)).enqueue(1).state == "pending"

    def test_an_idempotency_key_stands_for_one_job(self, store: Store, reads: Reads) -> None:
        keyed = add.using(idempotency_key="once", tenant="a")
        first, second = keyed.enqueue(1, b=2), keyed.enqueue(1, b=2)

        assert (second.id, second.outcome, second.args, second.kwargs) == (first.id, "exists", [1], {"b": 2})
        assert reads.overview().waiting == 1
        assert keyed.using(tenant="other").enqueue(1, b=2).id != first.id

    def test_the_order_of_keywords_and_the_options_make_no_conflict(self, store: Store) -> None:
        keyed = add.using(idempotency_key="once")
        first = keyed.enqueue(a=1, b=2)

        assert keyed.using(backoff=9).enqueue(b=2, a=1).id == first.id

    def test_other_arguments_are_a_conflict(self, store: Store) -> None:
        keyed = add.using(idempotency_key="once", tenant="a")
        first = keyed.enqueue(1)
        with pytest.raises(IdempotencyConflict, match=rf"'once' of tenant 'a' stands for job {first.id}"):
            keyed.enqueue(3)

    def test_it_is_announced_once_when_accepted(self, store: Store) -> None:
        seen: list[tuple[type, str]] = []

        def receive(sender: type, task_result: Any, **_: Any) -> None:
            seen.append((sender, task_result.id))

        task_enqueued.connect(receive)
        try:
            keyed = add.using(idempotency_key="k")
            result = keyed.enqueue(1)
            keyed.enqueue(1)
        finally:
            task_enqueued.disconnect(receive)
        assert seen == [(DuctorBackend, result.id)]

    def test_a_store_that_is_away_is_one_clear_error(self, settings: Any) -> None:
        seen: list[object] = []

        def receive(**kwargs: Any) -> None:
            seen.append(kwargs)

        task_enqueued.connect(receive)
        try:
            with (
                override_settings(DUCTOR={**settings.DUCTOR, "REDIS_URL": "redis://:geheim@localhost:1/0"}),
                pytest.raises(StoreUnavailable) as caught,
            ):
                add.enqueue(1)
        finally:
            task_enqueued.disconnect(receive)
        assert "cannot be reached" in str(caught.value)
        assert "geheim" not in str(caught.value)
        assert seen == []


class TestAsync:
    def test_aenqueue_takes_no_thread(self, store: Store, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> Any:
            raise AssertionError("aenqueue went through sync_to_async")

        monkeypatch.setattr(asgiref.sync.SyncToAsync, "__call__", refuse)
        result = asyncio.run(add.aenqueue(1, b=2))

        assert isinstance(result, DuctorResult)
        assert reads.overview().waiting == 1

    def test_results_and_keys(self, store: Store) -> None:
        async def twice() -> tuple[DuctorResult, DuctorResult]:
            keyed = add_async.using(idempotency_key="k")
            first, second = await keyed.aenqueue(1), await keyed.aenqueue(1)
            assert (await add_async.aget_result(first.id)).id == first.id
            with pytest.raises(IdempotencyConflict):
                await keyed.aenqueue(2)
            with pytest.raises(TaskResultDoesNotExist):
                await add.aget_result("nothing")
            return first, second

        first, second = asyncio.run(twice())
        assert (second.id, second.outcome) == (first.id, "exists")

    def test_an_unknown_pool_s_job_is_not_looked_for_in_the_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The code of a pool that this process does not know is asked of the store, which may be slow."""
        where: list[int] = []
        monkeypatch.setattr(shards, "locate", lambda public_id: where.append(threading.get_ident()))
        with pytest.raises(TaskResultDoesNotExist):
            asyncio.run(add.aget_result("abcdef.0." + "x" * 22))
        assert where != [threading.get_ident()]

    def test_asynchronous_receivers_are_awaited(self, store: Store) -> None:
        seen: list[str] = []

        async def receive(task_result: Any, **_: Any) -> None:
            seen.append(task_result.id)

        task_enqueued.connect(receive)
        try:
            result = asyncio.run(add.aenqueue(1))
        finally:
            task_enqueued.disconnect(receive)
        assert seen == [result.id]


def test_a_pools_row_is_what_its_settings_fill() -> None:
    from queueapp.setting_readers import POOL_VALUES

    assert {name.lower() for name in POOL_VALUES} <= {field.name for field in Pool._meta.get_fields()}
