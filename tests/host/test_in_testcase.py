"""Inside TestCase, whose own transaction never commits: what its code would have sent after commit is found."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import transaction
from django.test import TestCase, TransactionTestCase
from django.test.utils import CaptureQueriesContext

from queueapp.testing import (
    DuctorTestMixin,
    aassert_enqueued,
    adrain,
    assert_enqueued,
    assert_not_enqueued,
    drain,
    immediate,
    recorded,
    throwaway_store,
)
from queueapp.testing.factories import PoolFactory
from tests.host.shop import count_users, count_users_here, in_one_block, ran, send_invoice, where_am_i

pytestmark = pytest.mark.compat


class Recorded(TestCase):
    def test_outside_of_blocks_it_is_sent_at_once(self) -> None:
        with recorded():
            result = send_invoice.enqueue(1)
            assert (result.state, result.outcome) == ("pending", "enqueued")
            assert_enqueued(send_invoice, count=1)

    def test_a_block_of_the_view_is_found(self) -> None:
        with recorded() as jobs:
            self.client.get("/order/1/")
            assert_enqueued(send_invoice, args=[1], tenant="acme", count=1)
            assert len(jobs) == 1

    def test_it_is_found_after_the_end_as_well(self) -> None:
        with recorded() as jobs:
            self.client.get("/order/1/")
        assert [job.result.state for job in jobs] == ["pending"]

    def test_a_block_that_is_open_has_sent_nothing_yet(self) -> None:
        with recorded(), transaction.atomic():
            send_invoice.enqueue(1)
            with pytest.raises(AssertionError, match="An atomic block is open"):
                assert_enqueued(send_invoice)

    def test_a_rollback_takes_it_along(self) -> None:
        with recorded():
            self.client.get("/fails/1/")
            assert_not_enqueued()

    def test_djangos_own_capture_runs_it_once(self) -> None:
        with recorded() as jobs:
            with self.captureOnCommitCallbacks(execute=True) as callbacks:
                self.client.get("/order/1/")
            assert_enqueued(send_invoice, count=1)
        assert (len(callbacks), len(jobs)) == (1, 1)

    def test_looking_first_and_capturing_later_is_once_too(self) -> None:
        with recorded() as jobs:
            with self.captureOnCommitCallbacks(execute=True):
                self.client.get("/order/1/")
                assert_enqueued(send_invoice, count=1)
                self.client.get("/order/2/")
            assert len(jobs) == 2

    def test_callbacks_of_others_are_left_alone(self) -> None:
        called: list[str] = []
        with recorded():
            transaction.on_commit(lambda: called.append("host's"))
            self.client.get("/order/1/")
            assert_enqueued(send_invoice)
        assert called == []

    def test_what_was_enqueued_before_is_not_its_own(self) -> None:
        self.client.get("/order/1/")
        with recorded() as jobs:
            self.client.get("/order/2/")
        assert [job.args for job in jobs] == [[2]]

    async def test_asynchronous(self) -> None:
        with recorded() as jobs:
            await self.async_client.get("/aorder/1/")
            await sync_to_async(self.client.get)("/order/2/")
            await aassert_enqueued(send_invoice, args=[1])
            await aassert_enqueued(send_invoice, args=[2])
        assert len(jobs) == 2


class LeftOvers(TestCase):
    """C143: callbacks that set-up left do not fire in a test's block."""

    @classmethod
    def setUpTestData(cls) -> None:
        with transaction.atomic():
            cls.left = send_invoice.enqueue(0)

    left: ClassVar[Any]

    def test_c143_capture_runs_only_what_was_made_inside(self) -> None:
        with recorded() as jobs:
            with self.captureOnCommitCallbacks(execute=True):
                self.client.get("/order/1/")
            assert [job.args for job in jobs] == [[1]]
        assert self.left.state == "deferred"

    def test_c143_a_recorder_collects_only_what_was_made_inside(self) -> None:
        with recorded() as jobs:
            self.client.get("/order/2/")
        assert [job.args for job in jobs] == [[2]]

    def test_c143_drain_runs_only_what_the_test_made(self) -> None:
        with throwaway_store():
            self.client.get("/order/3/")
            drain()
        assert [what for _, what in ran] == [3]
        assert self.left.state == "deferred"

    @immediate()
    def test_c143_immediate_runs_only_what_was_made_inside(self) -> None:
        self.client.get("/order/4/")
        assert_enqueued(count=1)
        assert [what for _, what in ran] == [4]


class Immediate(TestCase):
    def test_bodies_see_the_rows_of_the_test(self) -> None:
        User.objects.create(username="ada")
        with immediate():
            assert count_users.enqueue().return_value == 1

    async def test_bodies_of_asynchronous_enqueueing_too(self) -> None:
        await User.objects.acreate(username="ada")
        with immediate():
            assert (await count_users_here.aenqueue()).return_value == 1
            assert (await count_users.aenqueue()).return_value == 1

    def test_a_block_runs_its_bodies_when_somebody_looks(self) -> None:
        with immediate():
            self.client.get("/order/1/")
            assert ran == [], "a TestCase never commits"
            assert_enqueued(send_invoice)
            assert ran == [("acme", 1)]

    def test_or_at_the_end(self) -> None:
        with immediate():
            self.client.get("/order/1/")
        assert ran == [("acme", 1)]


class Drained(TestCase):
    def test_what_views_enqueued_runs_on_the_connection_of_the_test(self) -> None:
        with throwaway_store() as ductor:
            self.client.get("/order/1/")
            count_users.enqueue()
            with CaptureQueriesContext(transaction.get_connection()) as queries:
                drained = ductor.drain()
        assert (drained.succeeded, drained.failed) == (2, 0)
        assert drained.results[1].return_value == 1, "the user that the view made and nobody committed"
        assert any("COUNT" in query["sql"] for query in queries)
        assert User.objects.count() == 1, "the connection is still the one with the open transaction"

    def test_blocks_inside_bodies(self) -> None:
        with throwaway_store():
            in_one_block.enqueue(7)
            drain()
        assert [what for _, what in ran] == [7, 7]

    async def test_asynchronous(self) -> None:
        await User.objects.acreate(username="ada")
        with throwaway_store():
            result = await count_users.aenqueue()
            await adrain()
            await result.arefresh()
        assert result.return_value == 1


class Committed(TransactionTestCase):
    def test_after_commit(self) -> None:
        with throwaway_store():
            self.client.get("/order/1/")
            assert_enqueued(send_invoice, tenant="acme")
            here, there = where_am_i.func, where_am_i.enqueue()
            drain()
            there.refresh()
        assert here is not None
        assert there.return_value == id(transaction.get_connection().connection)


class Mixed(DuctorTestMixin, TestCase):
    def test_recorded_is_the_rule(self) -> None:
        self.client.get("/order/1/")
        assert_enqueued(send_invoice)
        assert (len(self.ductor), ran) == (1, [])


class MixedImmediate(DuctorTestMixin, TestCase):
    ductor_mode = "immediate"

    def test_bodies_run(self) -> None:
        send_invoice.enqueue(1)
        assert ran == [("default", 1)]


class MixedStore(DuctorTestMixin, TestCase):
    ductor_mode = "store"

    def test_a_store_of_its_own(self) -> None:
        send_invoice.enqueue(1)
        assert self.ductor.drain().succeeded == 1


def test_a_mode_that_is_none_is_refused() -> None:
    class Wrong(DuctorTestMixin, TestCase):
        ductor_mode = "eager"

        def runTest(self) -> None: ...

    with pytest.raises(ValueError, match="recorded, immediate, store"):
        Wrong().setUp()


class RowsOfTheClass(TestCase):
    """What the rows of a class ask is in force in each of its tests, as each has a store of its own."""

    @classmethod
    def setUpTestData(cls) -> None:
        PoolFactory.create(name="default", paused=True)

    def test_in_one_test(self) -> None:
        self._nothing_runs()

    def test_in_the_next(self) -> None:
        self._nothing_runs()

    def _nothing_runs(self) -> None:
        with throwaway_store():
            send_invoice.enqueue(1)
            assert len(drain()) == 0
