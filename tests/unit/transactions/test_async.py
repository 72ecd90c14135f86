"""Which blocks count in asynchronous code and in its synchronous parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

from tests.producing import add


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
