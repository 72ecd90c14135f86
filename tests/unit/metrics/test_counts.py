"""What schedulers and senders count, and which tenants a worker begins with."""

from __future__ import annotations

import math
import threading

import pytest
from django.core.management.base import CommandError
from django.db import OperationalError, transaction
from django.test.utils import override_settings
from django.utils import timezone

from ductor_project.settings import DUCTOR
from queueapp.cli import probes
from queueapp.inspection.pools import first_tenants
from queueapp.models import OutboxEntry, Tenant
from queueapp.producer import outbox
from queueapp.producer.relaying import relay
from queueapp.scheduler.duties.outbox_size import EVERY_S, OutboxSize
from queueapp.scheduler.leadership import Leadership
from queueapp.scheduler.loop import Scheduler
from queueapp.store.store import Store
from tests.producing import add
from tests.unit.metrics.reading import here

NOWHERE = {**DUCTOR, "REDIS_URL": "redis://localhost:1/0"}


def failures(code: str) -> float:
    return here("ductor_enqueue_failed_total", pool="default", code=code)


@pytest.mark.django_db(transaction=True)
class TestEnqueueFailed:
    def test_a_send_that_found_no_store_after_commit_is_counted(self) -> None:
        before = failures("store_unavailable")
        with override_settings(DUCTOR=NOWHERE), transaction.atomic():
            add.enqueue(1)
            assert failures("store_unavailable") == before, "it has not been sent yet"
        assert failures("store_unavailable") == before + 1

    def test_what_the_outbox_could_not_send_is_counted(self, store: Store) -> None:
        before = failures("conflict")
        keyed = add.using(idempotency_key="k")
        with override_settings(DUCTOR=NOWHERE), transaction.atomic():
            keyed.enqueue(1)
        keyed.enqueue(2)
        relay()
        assert failures("conflict") == before + 1


@pytest.mark.django_db(transaction=True)
class TestOutboxSize:
    def rows(self, state: str, count: int) -> None:
        for number in range(count):
            OutboxEntry.objects.create(
                job_id=f"{state}{number}", pool="default", job={}, payload=b"", state=state, due=timezone.now()
            )

    def test_it_counts_by_state(self) -> None:
        self.rows("waiting", 3)
        self.rows("refused", 1)
        assert OutboxSize().run() == EVERY_S
        assert here("ductor_outbox_entries", state="waiting") == 3
        assert here("ductor_outbox_entries", state="refused") == 1

    def test_an_old_figure_does_not_outlive_the_database(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def away() -> int:
            raise OperationalError("gone")

        self.rows("waiting", 3)
        OutboxSize().run()
        monkeypatch.setattr(outbox, "refused", away)
        with pytest.raises(OperationalError):
            OutboxSize().run()
        assert math.isnan(here("ductor_outbox_entries", state="waiting"))


class TestLeadership:
    def test_a_term_counts_when_it_begins_and_a_renewal_does_not(self, store: Store) -> None:
        now = 0.0
        one = Leadership("terms", store, "s.1", ttl_ms=5_000, renew_ms=1_000, retry_ms=100, clock=lambda: now)

        def terms() -> float:
            return here("ductor_scheduler_leader_transitions_total", pool="terms", shard="0")

        assert terms() == 0
        one.tick()
        for _ in range(3):
            now += 1.0
            one.tick()
        assert terms() == 1
        one.release()
        now += 10.0
        one.tick()
        assert terms() == 2

    def test_a_scheduler_knows_what_it_leads(self, store: Store) -> None:
        scheduler = Scheduler("s.1", lambda: ["default"], lambda pool: store)
        assert scheduler.leading() == {}
        assert scheduler.unready == "it has found no pool yet"
        scheduler._find_pools()
        assert scheduler.leading() == {"default": False}
        assert scheduler.unready == ""
        scheduler.leaderships["default"].tick()
        assert scheduler.leading() == {"default": True}
        scheduler.stop()
        assert scheduler.unready == "it is stopping"
        scheduler.leaderships["default"].release()


@pytest.mark.django_db
def test_the_first_tenants_are_the_rows_that_were_made_first() -> None:
    for key in ("zoo", "acme", "birch"):
        Tenant.objects.create(key=key)
    assert first_tenants(2) == ["zoo", "acme"]
    assert first_tenants(0) == []


class TestProbe:
    def test_an_answer_in_time_is_passed_on(self) -> None:
        assert probes.in_time(lambda: "ok") == "ok"

    def test_so_is_what_was_raised(self) -> None:
        def refuse() -> str:
            raise CommandError("nobody leads")

        with pytest.raises(CommandError, match=r"^nobody leads$"):
            probes.in_time(refuse)

    def test_one_that_hangs_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gate = threading.Event()
        monkeypatch.setattr(probes, "PATIENCE_S", 0.01)
        with pytest.raises(CommandError, match=r"no answer within 0\.01 s"):
            probes.in_time(lambda: "late" if gate.wait(10) else "")
        gate.set()
