"""What the handle of a job says while the job is in the outbox, and after it has left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queueapp.compat import TaskResultDoesNotExist
from queueapp.errors import IdempotencyConflict, NotSentYet
from queueapp.models import OutboxEntry
from queueapp.producer import outbox
from queueapp.producer.relaying import relay
from queueapp.store.store import Store
from tests.producing import add, run_waiting
from tests.unit.outbox.away import kept

pytestmark = pytest.mark.django_db(transaction=True)


class TestHandle:
    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_waiting_says_where_the_job_is_and_why(self, asynchronous: bool, redis_url: str) -> None:
        result = kept()

        with pytest.raises(NotSentYet, match=r"outbox of the database 'default'.*cannot be reached"):
            asyncio.run(result.await_(60)) if asynchronous else result.wait(60)

    def test_refresh_finds_it_once_it_was_sent(self, store: Store) -> None:
        result = kept()
        result.refresh()
        assert (result.state, result.outbox) == ("deferred", "default")

        relay()
        result.refresh()
        assert (result.state, result.outbox, result.send_error) == ("pending", "", None)

    def test_arefresh_does_too(self, store: Store) -> None:
        result = kept()
        asyncio.run(result.arefresh())
        assert result.state == "deferred"

        relay()
        asyncio.run(result.arefresh())
        assert (result.state, result.outbox) == ("pending", "")

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_waiting_works_once_it_was_sent(self, store: Store, asynchronous: bool) -> None:
        result = kept(add, 20)
        relay()
        run_waiting(store)

        done = asyncio.run(result.await_(10)) if asynchronous else result.wait(10)
        assert done.return_value == 20

    def test_a_refusal_reaches_it(self, store: Store) -> None:
        keyed = add.using(idempotency_key="k")
        result = kept(keyed, 1)
        keyed.enqueue(2)
        relay()

        result.refresh()
        assert (result.outbox, isinstance(result.send_error, IdempotencyConflict)) == ("", True)
        with pytest.raises(NotSentYet, match="already stands for job"):
            result.wait()

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_one_that_the_store_refused_stays_for_people_to_see(self, store: Store, asynchronous: bool) -> None:
        keyed = add.using(idempotency_key="k")
        result = kept(keyed, 1)
        keyed.enqueue(2)
        relay()

        assert not (asyncio.run(outbox.awithdraw(result)) if asynchronous else outbox.withdraw(result))
        assert [row.state for row in OutboxEntry.objects.all()] == ["refused"]

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_neither_here_nor_there(self, asynchronous: bool, redis_url: str) -> None:
        result = kept()
        OutboxEntry.objects.all().delete()

        with pytest.raises(TaskResultDoesNotExist, match="neither in the outbox nor in the store"):
            asyncio.run(result.arefresh()) if asynchronous else result.refresh()

    def test_what_is_carried_over_between_two_looks_is_found(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        result = kept()
        rows = outbox.rows

        def relayed_meanwhile(alias: str) -> Any:
            monkeypatch.setattr(outbox, "rows", rows)
            relay()
            return rows(alias)

        monkeypatch.setattr(outbox, "rows", relayed_meanwhile)
        result.refresh()
        assert result.state == "pending"
