"""What Django's own test cases wrap around a test counts for nothing; a block inside them does."""

from __future__ import annotations

import asyncio

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from queueapp.compat import TaskResultStatus
from tests.producing import add
from tests.unit.transactions.rollback import rolled_back


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
