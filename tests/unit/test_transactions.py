"""Inside a transaction a job goes out after commit and never on rollback; outside it goes out at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, TestCase, TransactionTestCase
from django.test.utils import override_settings
from django.urls import path

from queueapp import enqueue_many
from queueapp.compat import TaskResultStatus, task_enqueued
from queueapp.errors import (
    IdempotencyConflict,
    InvalidOption,
    NotSentYet,
    PayloadTooLarge,
    StoreUnavailable,
    UnknownPool,
    UnknownTenant,
    UnserialisableArgument,
)
from queueapp.producer import transactions
from queueapp.store.reads import Reads
from tests.producing import add

NOWHERE = "redis://localhost:1/0"


class Rollback(Exception):
    """Rolls a block back."""


@contextmanager
def rolled_back(alias: str = "default") -> Iterator[None]:
    with suppress(Rollback), transaction.atomic(using=alias):
        yield
        raise Rollback


@pytest.fixture
def waiting(reads: Reads) -> Callable[[], int]:
    return lambda: reads.overview().waiting


@pytest.fixture
def announced() -> Iterator[list[str]]:
    seen: list[str] = []

    def receive(task_result: Any, **_: Any) -> None:
        seen.append(task_result.id)

    task_enqueued.connect(receive, weak=False)
    yield seen
    task_enqueued.disconnect(receive)


@pytest.mark.django_db(transaction=True)
class TestCommit:
    def test_without_a_transaction_it_goes_out_at_once(self, waiting: Callable[[], int]) -> None:
        result = add.enqueue(1)

        assert (result.state, result.outcome, waiting()) == ("pending", "enqueued", 1)

    def test_inside_it_goes_out_after_commit(self, waiting: Callable[[], int], announced: list[str]) -> None:
        with transaction.atomic():
            result = add.enqueue(1)
            assert (result.state, result.outcome, waiting(), announced) == ("deferred", "deferred", 0, [])
            assert not result.enqueued_at
        assert (result.state, result.outcome, waiting(), announced) == ("pending", "enqueued", 1, [result.id])
        assert result.enqueued_at is not None
        assert add.get_result(result.id).args == [1]

    def test_on_rollback_it_never_goes_out(self, waiting: Callable[[], int], announced: list[str]) -> None:
        with rolled_back():
            result = add.enqueue(1)

        assert (result.state, waiting(), announced) == ("deferred", 0, [])

    def test_a_savepoint_that_rolls_back_takes_its_jobs_along(self, waiting: Callable[[], int]) -> None:
        with transaction.atomic():
            kept = add.enqueue(1)
            with rolled_back():
                lost = add.enqueue(2)

        assert (kept.state, lost.state, waiting()) == ("pending", "deferred", 1)

    def test_nested_blocks_wait_for_the_outermost(self, waiting: Callable[[], int]) -> None:
        with transaction.atomic():
            with transaction.atomic():
                add.enqueue(1)
            assert waiting() == 0
        assert waiting() == 1

    def test_using_on_commit_false_goes_out_at_once(self, waiting: Callable[[], int]) -> None:
        with rolled_back():
            add.using(on_commit=False).enqueue(1)
            assert waiting() == 1
        assert waiting() == 1

    def test_the_setting_turns_it_off_and_the_option_on_again(self, waiting: Callable[[], int], settings: Any) -> None:
        with override_settings(DUCTOR={**settings.DUCTOR, "ENQUEUE_ON_COMMIT": False}), transaction.atomic():
            add.enqueue(1)
            assert waiting() == 1
            add.using(on_commit=True).enqueue(2)
            assert waiting() == 1
        assert waiting() == 2

    def test_jobs_keep_their_order(self, reads: Reads) -> None:
        with transaction.atomic():
            ids = [add.enqueue(number).id for number in range(5)]

        records = [reads.job(job_id[-22:]) for job_id in ids]
        assert [record.payload for record in records if record] == [b'{"a":[%d]}' % number for number in range(5)]

    def test_bulk_inside_goes_out_after_commit_too(self, waiting: Callable[[], int]) -> None:
        with transaction.atomic():
            outcomes = enqueue_many([add.bind(1), add.using(on_commit=False).bind(2), add.bind(set()), add.bind(3)])
            assert waiting() == 1
        assert [outcome.word for outcome in outcomes] == ["deferred", "enqueued", "unserialisable", "deferred"]
        assert [outcome.result.state for outcome in outcomes if outcome.result] == ["pending"] * 3
        assert waiting() == 3

    def test_autocommit_off_has_no_hook_and_goes_out_at_once(self, waiting: Callable[[], int]) -> None:
        transaction.set_autocommit(False)
        try:
            add.enqueue(1)
            assert waiting() == 1
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)

    def test_what_needs_no_store_is_refused_at_once(self, waiting: Callable[[], int], settings: Any) -> None:
        settings.DUCTOR = {**settings.DUCTOR, "UNKNOWN_TENANTS": "reject"}
        with transaction.atomic():
            with pytest.raises(UnserialisableArgument):
                add.enqueue({1})
            with pytest.raises(PayloadTooLarge):
                add.enqueue("x" * 300_000)
            with pytest.raises(UnknownPool):
                add.using(queue_name="nowhere").enqueue(1)
            with pytest.raises(UnknownTenant):
                add.using(tenant="stranger").enqueue(1)
            with pytest.raises(InvalidOption):
                add.using(database="nowhere").enqueue(1)
        assert waiting() == 0

    def test_no_hook_is_registered_where_no_block_is_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In asynchronous code `on_commit` would raise there, and elsewhere run at once, before the store answered."""
        hooks: list[object] = []
        monkeypatch.setattr(connection, "on_commit", lambda hook, robust=False: hooks.append(hook))
        add.enqueue(1)
        asyncio.run(add.aenqueue(1))

        assert hooks == []

    def test_aenqueue_outside_goes_out_at_once(self, waiting: Callable[[], int]) -> None:
        assert asyncio.run(add.aenqueue(1)).state == "pending"
        assert waiting() == 1


class TestHandle:
    pytestmark = pytest.mark.django_db(transaction=True)

    def test_refresh_does_nothing_and_waiting_raises_at_once(self) -> None:
        with transaction.atomic():
            result = add.enqueue(1)
            result.refresh()
            asyncio.run(result.arefresh())
            assert result.state == "deferred"
            with pytest.raises(NotSentYet, match="when the transaction commits"):
                result.wait(timeout=60)
            with pytest.raises(NotSentYet):
                asyncio.run(result.await_(timeout=60))
        result.refresh()
        assert result.state == "pending"


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
        assert (record.levelno, record.job_id, record.code) == (logging.ERROR, result.id, "store_unavailable")  # type: ignore[attr-defined]
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


class TestSeveralConnections:
    """Blocks on two connections, told apart by hand: what Django's own do at commit and at rollback is what counts."""

    class Connection:
        def __init__(self, alias: str) -> None:
            self.alias = alias
            self.in_atomic_block = True
            self.atomic_blocks = [object()]
            self.hooks: list[tuple[Callable[[], None], bool]] = []

        def on_commit(self, hook: Callable[[], None], robust: bool = False) -> None:
            self.hooks.append((hook, robust))

        def commit(self) -> None:
            self.in_atomic_block, self.atomic_blocks = False, []
            for hook, _ in self.hooks:
                hook()

        def rollback(self) -> None:
            self.in_atomic_block, self.atomic_blocks, self.hooks = False, [], []

    @pytest.fixture
    def pair(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
        pair = [self.Connection("a"), self.Connection("b")]
        with monkeypatch.context() as patched:
            patched.setattr(connections, "all", lambda initialized_only=False: pair)
            yield pair

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_it_waits_for_both(self, pair: list[Connection], order: tuple[int, int]) -> None:
        sent: list[bool] = []
        assert transactions.defer(lambda _: sent.append(True), True)

        pair[order[0]].commit()
        assert sent == []
        pair[order[1]].commit()
        assert sent == [True]

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_a_rollback_of_either_keeps_it_back(self, pair: list[Connection], order: tuple[int, int]) -> None:
        sent: list[bool] = []
        transactions.defer(lambda _: sent.append(True), True)

        pair[order[0]].rollback()
        pair[order[1]].commit()
        assert sent == []

    def test_a_commit_then_a_rollback_keeps_it_back(self, pair: list[Connection]) -> None:
        sent: list[bool] = []
        transactions.defer(lambda _: sent.append(True), True)

        pair[0].commit()
        pair[1].rollback()
        assert sent == []

    def test_hooks_are_robust(self, pair: list[Connection]) -> None:
        transactions.defer(lambda _: None, True)

        assert [robust for connection in pair for _, robust in connection.hooks] == [True, True]

    def test_on_commit_is_not_called_where_no_block_is_open(self, pair: list[Connection]) -> None:
        pair[1].in_atomic_block, pair[1].atomic_blocks = False, []
        transactions.defer(lambda _: None, True)

        assert [len(connection.hooks) for connection in pair] == [1, 0]


class TestTwoDatabases:
    """The same with Django's own blocks, on two real databases."""

    pytestmark = pytest.mark.django_db(transaction=True)

    @pytest.mark.parametrize("inner", ["default", "second"])
    def test_it_waits_for_the_last_commit(self, second_database: str, inner: str, waiting: Callable[[], int]) -> None:
        outer = "default" if inner == second_database else second_database
        with transaction.atomic(using=outer):
            with transaction.atomic(using=inner):
                add.enqueue(1)
            assert waiting() == 0
        assert waiting() == 1

    @pytest.mark.parametrize("inner", ["default", "second"])
    def test_a_rollback_of_the_outer_keeps_it_back(
        self, second_database: str, inner: str, waiting: Callable[[], int]
    ) -> None:
        outer = "default" if inner == second_database else second_database
        with rolled_back(outer), transaction.atomic(using=inner):
            add.enqueue(1)
        assert waiting() == 0

    @pytest.mark.parametrize("inner", ["default", "second"])
    def test_a_rollback_of_the_inner_keeps_it_back(
        self, second_database: str, inner: str, waiting: Callable[[], int]
    ) -> None:
        outer = "default" if inner == second_database else second_database
        with transaction.atomic(using=outer), rolled_back(inner):
            add.enqueue(1)
        assert waiting() == 0

    def test_a_block_of_another_alias_alone_counts(self, second_database: str, waiting: Callable[[], int]) -> None:
        with transaction.atomic(using=second_database):
            add.enqueue(1)
            assert waiting() == 0
        assert waiting() == 1

    def test_the_option_database_waits_for_that_one_alone(
        self, second_database: str, waiting: Callable[[], int]
    ) -> None:
        with transaction.atomic(using=second_database):
            with transaction.atomic():
                add.using(database="default").enqueue(1)
                assert waiting() == 0
            assert waiting() == 1
            add.using(database="default").enqueue(2)
            assert waiting() == 2, "no block of that database is open"
            add.using(database=second_database).enqueue(3)
            assert waiting() == 2
        assert waiting() == 3


class TestAsync:
    """Asynchronous code cannot open blocks, and has connections of its own."""

    pytestmark = pytest.mark.django_db(transaction=True)

    def test_a_block_around_async_to_sync_is_not_seen_by_aenqueue(self, waiting: Callable[[], int]) -> None:
        with transaction.atomic():
            result = async_to_sync(add.aenqueue)(1)
            assert (result.state, waiting()) == ("pending", 1)

    def test_but_by_enqueue_in_the_synchronous_part_of_it(self, waiting: Callable[[], int]) -> None:
        async def body() -> Any:
            return await sync_to_async(add.enqueue)(1)

        with transaction.atomic():
            result = async_to_sync(body)()
            assert (result.state, waiting()) == ("deferred", 0)
        assert (result.state, waiting()) == ("pending", 1)

    def test_a_block_in_the_synchronous_part_of_asynchronous_code_is_one(self, waiting: Callable[[], int]) -> None:
        def part() -> None:
            with transaction.atomic():
                add.enqueue(1)
                assert waiting() == 0

        async def body() -> None:
            await sync_to_async(part)()

        async_to_sync(body)()
        assert waiting() == 1


def enqueueing_view(request: HttpRequest) -> HttpResponse:
    result = add.enqueue(1)
    if request.GET:
        raise Rollback
    return HttpResponse(result.state)


@transaction.non_atomic_requests
def view_outside(request: HttpRequest) -> HttpResponse:
    return HttpResponse(add.enqueue(1).state)


@transaction.non_atomic_requests
async def asynchronous_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse((await add.aenqueue(1)).state)


urlpatterns = [path("atomic", enqueueing_view), path("not", view_outside), path("async", asynchronous_view)]


@pytest.mark.urls(__name__)
class TestAtomicRequests:
    pytestmark = pytest.mark.django_db(transaction=True)

    @pytest.fixture(autouse=True)
    def _on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)

    def test_a_view_is_a_transaction(self, client: Client, waiting: Callable[[], int]) -> None:
        assert client.get("/atomic").content == b"deferred"
        assert waiting() == 1

    def test_a_view_that_raises_sends_nothing(self, client: Client, waiting: Callable[[], int]) -> None:
        with pytest.raises(Rollback):
            client.get("/atomic", {"raise": "1"})
        assert waiting() == 0

    @pytest.mark.parametrize("where", ["/not", "/async"])
    def test_views_outside_of_it_send_at_once(self, client: Client, waiting: Callable[[], int], where: str) -> None:
        assert client.get(where).content == b"pending"
        assert waiting() == 1


@pytest.mark.usefixtures("redis_url")
class TestInsideTestCase(TestCase):
    """TestCase's own transaction is none; a block inside it is one."""

    def test_its_own_transaction_counts_as_none(self) -> None:
        assert connection.in_atomic_block
        assert add.enqueue(1).state == "pending"
        assert asyncio.run(add.aenqueue(1)).state == "pending"

    def test_a_block_inside_is_a_transaction(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            with transaction.atomic():
                result = add.enqueue(1)
            assert result.state == "deferred"
        assert len(callbacks) == 1
        assert result.state == "pending"

    def test_a_block_that_rolls_back_leaves_no_callback(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks, rolled_back():
            add.enqueue(1)
        assert callbacks == []


@pytest.mark.usefixtures("redis_url")
class TestInsideTransactionTestCase(TransactionTestCase):
    def test_as_in_earnest(self) -> None:
        with transaction.atomic():
            result = add.enqueue(1)
            assert result.state == "deferred"
        assert result.status == TaskResultStatus.READY
        assert result.state == "pending"
