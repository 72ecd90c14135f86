"""`recorded()`: what the code under test enqueues is written down, and nothing runs. No server anywhere."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.signals import post_save
from django.test import Client, SimpleTestCase
from django.utils import timezone

from queueapp import aenqueue_many, enqueue_many
from queueapp.compat import TaskResultStatus, task_enqueued
from queueapp.errors import IdempotencyConflict, InvalidOption, UnserialisableArgument, WaitTimeout
from queueapp.producer import client, outbox
from queueapp.store import shards
from queueapp.testing import Recorder, StoreBlocked, assert_enqueued, assert_not_enqueued, recorded
from tests.host.shop import broken, chosen_options, on_user, ran, renamed, secretive, send_invoice, typed

pytestmark = pytest.mark.compat


class TestWhatIsRecorded:
    def test_a_job_with_all_that_was_said_of_it(self) -> None:
        later = timezone.now() + timedelta(hours=1)

        with recorded() as jobs:
            result = chosen_options(later).enqueue(7, copies=("a", "b"))

        [job] = jobs
        assert (job.task.module_path, job.name) == ("tests.host.shop.send_invoice",) * 2
        assert (job.args, job.kwargs) == ([7], {"copies": ["a", "b"]})
        assert (job.tenant, job.lane, job.queue_name, job.priority) == ("acme", "mail", "default", 5)
        assert (job.run_after, job.idempotency_key) == (later, "order-7")
        assert {name: job.options[name] for name in ("cost", "max_attempts", "metadata")} == {
            "cost": 3,
            "max_attempts": 4,
            "metadata": {"from": "test"},
        }
        assert job.result is result
        assert ran == []

    def test_the_handle_stays_pending(self) -> None:
        with recorded():
            result = send_invoice.enqueue(1)
            result.refresh()
            assert (result.status, result.state) == (TaskResultStatus.READY, "pending")
            assert send_invoice.get_result(result.id).args == [1]
            with pytest.raises(WaitTimeout, match="recorded\\(\\) runs nothing"):
                result.wait(timeout=60)

    def test_what_enqueue_refuses_without_the_store_it_refuses_here(self) -> None:
        with recorded() as jobs:
            with pytest.raises(UnserialisableArgument):
                send_invoice.enqueue(object())  # type: ignore[arg-type]  # wrong on purpose
            with pytest.raises(InvalidOption):
                send_invoice.using(priority=1000).enqueue(1)
            assert len(jobs) == 0

    def test_bulk_is_recorded_in_order(self) -> None:
        with recorded() as jobs:
            outcomes = enqueue_many([send_invoice.bind(1), broken.bind(), send_invoice.bind(2)])

        assert [outcome.word for outcome in outcomes] == ["enqueued"] * 3
        assert [job.name.rpartition(".")[2] for job in jobs] == ["send_invoice", "broken", "send_invoice"]
        assert [job.args for job in jobs.of(send_invoice)] == [[1], [2]]

    def test_asynchronous_enqueueing(self) -> None:
        async def main() -> None:
            await send_invoice.aenqueue(1)
            await aenqueue_many([send_invoice.bind(2)])

        with recorded() as jobs:
            asyncio.run(main())

        assert [job.args for job in jobs] == [[1], [2]]

    def test_threads_of_the_host_are_recorded_too(self) -> None:
        with recorded() as jobs:
            thread = threading.Thread(target=send_invoice.enqueue, args=(1,))
            thread.start()
            thread.join()

        assert len(jobs) == 1

    def test_typed_arguments_are_as_the_task_gets_them(self) -> None:
        one = uuid.uuid4()
        with recorded() as jobs:
            typed.enqueue(timezone.now(), (one,))

        assert jobs[0].args[1] == (one,)

    def test_signals_of_django_tasks_are_sent(self) -> None:
        seen: list[str] = []

        def receive(task_result: object, **_: object) -> None:
            seen.append(task_result.id)  # type: ignore[attr-defined]  # Ductor sends its own result

        task_enqueued.connect(receive)
        with recorded():
            result = send_invoice.enqueue(1)
        task_enqueued.disconnect(receive)

        assert seen == [result.id]


class TestIdempotencyKeys:
    def test_the_same_job_twice_exists_once(self) -> None:
        with recorded() as jobs:
            first = send_invoice.using(idempotency_key="k").enqueue(1)
            second = send_invoice.using(idempotency_key="k").enqueue(1)

        assert (second.id, second.outcome) == (first.id, "exists")
        assert len(jobs) == 1

    def test_other_arguments_are_a_conflict(self) -> None:
        with recorded() as jobs:
            send_invoice.using(idempotency_key="k").enqueue(1)
            with pytest.raises(IdempotencyConflict):
                send_invoice.using(idempotency_key="k").enqueue(2)

        assert len(jobs) == 1

    def test_each_tenant_has_its_own_keys_and_each_block_too(self) -> None:
        keyed = send_invoice.using(idempotency_key="k")
        with recorded() as jobs:
            keyed.using(tenant="a").enqueue(1)
            keyed.using(tenant="b").enqueue(2)
        with recorded() as again:
            keyed.using(tenant="a").enqueue(3)

        assert (len(jobs), len(again)) == (2, 1)


class TestHowItIsUsed:
    @recorded()
    def test_as_a_decorator(self) -> None:
        send_invoice.enqueue(1)
        assert_enqueued(send_invoice, args=[1])

    def test_as_a_decorator_of_a_coroutine_function(self) -> None:
        @recorded()
        async def body() -> None:
            await send_invoice.aenqueue(1)
            assert_enqueued(send_invoice)

        asyncio.run(body())
        assert shards.stand_in is None

    def test_the_inner_block_holds_and_the_outer_one_comes_back(self) -> None:
        with recorded() as outer:
            with recorded() as inner:
                send_invoice.enqueue(1)
            send_invoice.enqueue(2)

        assert ([job.args for job in inner], [job.args for job in outer]) == ([[1]], [[2]])

    def test_everything_is_put_back_after_an_error(self) -> None:
        with pytest.raises(ZeroDivisionError), recorded():
            _ = 1 / 0

        assert (shards.stand_in, client.watcher) == (None, None)

    def test_a_recorder_can_be_emptied(self) -> None:
        with recorded() as jobs:
            send_invoice.enqueue(1)
            jobs.clear()
            send_invoice.enqueue(2)

        assert [job.args for job in jobs] == [[2]]
        assert repr(jobs) == "<Recorder of 1 jobs>"

    def test_what_needs_a_real_store_says_so(self) -> None:
        with recorded(), pytest.raises(StoreBlocked, match="the fixture `ductor`"):
            shards.store("default").peek()


@recorded()
class OfAWholeClass(SimpleTestCase):
    """Without a database, as the tests of a small library are."""

    def test_first(self) -> None:
        send_invoice.enqueue(1)
        assert_enqueued(count=1)

    def test_second_sees_nothing_of_the_first(self) -> None:
        assert_not_enqueued()


@pytest.fixture
def jobs() -> Iterator[Recorder]:
    with recorded() as recorder:
        yield recorder


@pytest.mark.django_db(transaction=True)
class TestTransactions:
    def test_after_commit_and_not_after_rollback(self, client: Client, jobs: Recorder) -> None:
        assert client.get("/fails/1/").status_code == 409
        assert_not_enqueued()
        assert client.get("/order/2/").status_code == 202
        assert [job.args for job in jobs] == [[2]]

    def test_a_signal_of_the_host(self, jobs: Recorder) -> None:
        post_save.connect(on_user, sender=User)
        try:
            with transaction.atomic():
                user = User.objects.create(username="ada")
                assert_not_enqueued()
        finally:
            post_save.disconnect(on_user, sender=User)
        assert_enqueued(send_invoice, args=[user.pk], tenant=user)

    def test_a_store_that_was_away_a_moment_ago_is_nothing_to_it(self) -> None:
        with transaction.atomic():
            send_invoice.enqueue(1)
        assert outbox.away() is not None, "the host's store is not there, and that is remembered"
        with recorded() as jobs, transaction.atomic():
            send_invoice.enqueue(2)
        assert [job.args for job in jobs] == [[2]]

    def test_views_of_every_kind(self, client: Client, jobs: Recorder) -> None:
        client.get("/aorder/1/")
        client.get("/month/")
        assert_enqueued(send_invoice, tenant="acme", count=3)


class TestAssertions:
    def test_it_gives_the_job(self, jobs: Recorder) -> None:
        send_invoice.enqueue(1)
        send_invoice.using(lane="mail").enqueue(2)

        assert assert_enqueued(send_invoice, lane="mail").args == [2]
        assert assert_enqueued("tests.host.shop.send_invoice").args == [1]

    def test_tuples_compare_as_they_travel_and_any_is_any(self, jobs: Recorder) -> None:
        send_invoice.enqueue(1, copies=["a", "b"])

        assert_enqueued(send_invoice, args=(1,), kwargs={"copies": ("a", "b")})
        assert_enqueued(send_invoice, kwargs={"copies": ANY})
        assert_enqueued(send_invoice, kwargs={"copies": ["a", ANY]})

    def test_former_names_are_known(self, jobs: Recorder) -> None:
        renamed.enqueue()
        assert_enqueued("shop.tasks.former_name")

    def test_options_compare_in_the_form_in_which_tasks_keep_them(self, jobs: Recorder) -> None:
        send_invoice.using(expires_after=timedelta(minutes=1), tenant=7, cost=2).enqueue(1)

        assert_enqueued(send_invoice, expires_after=60, tenant=7, cost=2.0)
        assert_enqueued(send_invoice, expires_after=timedelta(seconds=60), tenant="7")
        assert_not_enqueued(send_invoice, cost=3)

    @pytest.mark.parametrize(
        "expected",
        [
            {"args": [2]},
            {"kwargs": {"copies": None}},
            {"tenant": "other"},
            {"lane": "mail"},
            {"priority": 1},
            {"queue_name": "mail"},
            {"idempotency_key": "k"},
            {"max_attempts": 3},
            {"count": 2},
        ],
        ids=lambda expected: next(iter(expected)),
    )
    def test_each_expectation_can_fail(self, jobs: Recorder, expected: dict[str, Any]) -> None:
        send_invoice.using(tenant="acme").enqueue(1)

        with pytest.raises(AssertionError) as caught:
            assert_enqueued(send_invoice, **expected)
        assert "Enqueued:\n  tests.host.shop.send_invoice(1)  tenant='acme'" in str(caught.value)

    def test_the_message_names_what_was_looked_for_and_what_there_is(self, jobs: Recorder) -> None:
        send_invoice.using(queue_name="default", priority=3).enqueue(1, copies=["a"])

        with pytest.raises(AssertionError) as caught:
            assert_enqueued(broken, args=["x"], tenant="acme")
        assert str(caught.value) == (
            "No job: tests.host.shop.broken with args=['x'], tenant='acme'.\n"
            "Enqueued:\n"
            "  tests.host.shop.send_invoice(1, copies=['a'])  tenant='default' priority=3"
        )
        with pytest.raises(AssertionError, match="1 job, not 2: any task"):
            assert_enqueued(count=2)
        with pytest.raises(AssertionError, match=r"1 job, not 0: tests\.host\.shop\.send_invoice"):
            assert_not_enqueued(send_invoice)

    def test_nothing_at_all_is_said_too(self, jobs: Recorder) -> None:
        with pytest.raises(AssertionError, match="Nothing was enqueued"):
            assert_enqueued(send_invoice)

    def test_many_jobs_do_not_flood_the_message(self, jobs: Recorder) -> None:
        enqueue_many([send_invoice.bind(number) for number in range(30)])

        with pytest.raises(AssertionError, match="and 10 more"):
            assert_enqueued(broken)

    def test_secrets_do_not_show(self, jobs: Recorder) -> None:
        secretive.enqueue("ada", password="hunter2")

        with pytest.raises(AssertionError) as caught:
            assert_enqueued(broken)
        assert "ada" in str(caught.value)
        assert "hunter2" not in str(caught.value)
        assert "hunter2" not in str(jobs[0])

    def test_a_misspelt_option_is_refused(self, jobs: Recorder) -> None:
        with pytest.raises(TypeError, match="did you mean tenant"):
            assert_enqueued(send_invoice, tenand="acme")
        with pytest.raises(TypeError, match="list or tuple"):
            assert_enqueued(send_invoice, args="x")
        with pytest.raises(ValueError, match="assert_not_enqueued"):
            assert_enqueued(send_invoice, count=0)

    def test_without_a_recorder_it_says_what_to_do(self) -> None:
        with pytest.raises(RuntimeError, match=r"recorded\(\)"):
            assert_enqueued(send_invoice)

    def test_tasks_that_go_to_another_backend_are_pointed_out(self, jobs: Recorder, settings: object) -> None:
        settings.TASKS = {"default": {"BACKEND": "nowhere.Backend"}}  # type: ignore[attr-defined]  # pytest-django's settings take any name

        with pytest.raises(AssertionError, match="No alias of TASKS has Ductor's backend"):
            assert_enqueued(send_invoice)
