"""In which database a job is kept, and that the rows of every database with the table reach the store."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import Error as DatabaseError
from django.db import connections, transaction

from queueapp import sync
from queueapp.models import OutboxEntry, Pool
from queueapp.producer import outbox
from queueapp.producer.relaying import relay
from queueapp.store import shards
from queueapp.store.reads import Reads
from tests.producing import add
from tests.unit.outbox.away import kept, store_away

pytestmark = pytest.mark.django_db(transaction=True)


class TestDatabases:
    def test_the_row_stands_in_the_database_of_the_transaction(self, second_database: str) -> None:
        with connections[second_database].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        with store_away(), transaction.atomic(using=second_database):
            result = add.enqueue(1)

        assert result.outbox == second_database
        assert OutboxEntry.objects.using(second_database).get().job_id == result.id
        assert (OutboxEntry.objects.count(), outbox.waiting()) == (0, 1)

    def test_a_pool_that_was_renamed_meanwhile_gets_its_jobs(self, second_database: str) -> None:
        with connections[second_database].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        Pool.objects.create(name="mail")
        shards.store("mail")
        with store_away(), transaction.atomic(using=second_database):
            add.using(queue_name="mail").enqueue(1)
        sync.rename(Pool.objects.get(), "letters")
        shards.forget()  # as a scheduler that starts now

        assert relay().sent == 1
        assert shards.reads("letters").overview().waiting == 1

    def test_else_in_that_of_the_settings(self, second_database: str) -> None:
        with store_away(), transaction.atomic(using=second_database):
            result = add.enqueue(1)

        assert (result.outbox, OutboxEntry.objects.count()) == ("default", 1)

    def test_one_that_cannot_be_asked_for_its_table_costs_no_job(
        self, second_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(alias: str) -> bool:
            raise DatabaseError("no answer")

        monkeypatch.setattr(outbox, "_has_table", broken)
        with store_away(), transaction.atomic(using=second_database):
            result = add.enqueue(1)

        assert result.outbox == "default"

    def test_that_of_the_settings_comes_first_when_both_committed(self, second_database: str) -> None:
        with connections[second_database].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        with store_away(), transaction.atomic(using=second_database), transaction.atomic():
            result = add.enqueue(1)

        assert result.outbox == "default"

    def test_a_database_that_the_router_closes_to_us_is_not_used(
        self, second_database: str, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with connections[second_database].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        settings.DATABASE_ROUTERS = [f"{__name__}.DefaultOnly"]
        with store_away(), transaction.atomic(using=second_database):
            result = add.enqueue(1)

        assert (result.outbox, outbox.served()) == ("default", ("default",))

    def test_every_database_with_the_table_is_relayed(self, second_database: str, reads: Reads) -> None:
        with connections[second_database].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        with store_away(), transaction.atomic(using=second_database):
            add.enqueue(1)
        kept()

        assert relay().sent == 2
        assert reads.overview().waiting == 2

    def test_a_database_that_fails_costs_the_others_nothing(
        self, second_database: str, reads: Reads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept()
        monkeypatch.setattr(outbox._memory, "served", (second_database, "default"))
        monkeypatch.setattr(outbox._memory, "served_until", float("inf"))

        with pytest.raises(DatabaseError):  # it has no table
            relay()
        assert reads.overview().waiting == 1

    def test_a_database_that_cannot_be_asked_is_left_out(self, second_database: str, tmp_path: Any) -> None:
        connections.settings[second_database]["NAME"] = str(tmp_path / "no" / "such" / "directory")

        assert outbox.served() == ("default",)


class DefaultOnly:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db == "default"
