"""What is wrong with one schedule costs the others nothing, and what is told of it holds no text of anybody else."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from queueapp import Debounce, firings, schedule, task
from queueapp.database_checks import check_schedules
from queueapp.errors import InvalidOption
from queueapp.firings import Rule
from queueapp.models import Schedule
from queueapp.producer import discovery
from queueapp.producer.discovery import BrokenModule
from queueapp.scheduler.duties.schedules import ASIDE_S, Schedules
from queueapp.schedules import jobs
from queueapp.schedules.firing import Passed, fire_due, repair
from queueapp.schedules.rows import bring_into_rows
from queueapp.store.store import Store
from tests.clock import Clock
from tests.producing import add
from tests.unit.schedules.conftest import DAY, HOUR, MINUTE, NOW, fire, planned, stored

pytestmark = pytest.mark.django_db(transaction=True)

GRACE = 15 * MINUTE
SECRET = "s3cret"


@task(debounce=Debounce("{opt}", 5))
def odd(opt: Any = frozenset()) -> None: ...


class TestDeclarations:
    def test_one_that_cannot_be_prepared_costs_the_others_nothing(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its debounce cannot be filled in from a default that no text stands for."""
        schedule(odd, name="a odd one", every=60)
        schedule(add, args=[1], name="b", cron="0 * * * *")
        planned(name="due")

        assert Schedules(lambda: NOW, Clock()).run() == 1.0

        assert {row.name: row.outcome for row in Schedule.objects.all()} == {"b": "", "due": "fired"}
        assert "debounce has a key with the field 'opt'" in caplog.text

    def test_nor_one_whose_check_raises_what_nobody_expects(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        schedule(add, args=[1], name="a", cron="0 * * * *")
        schedule(add, args=[1], name="b", cron="0 * * * *")
        clean = Schedule.full_clean

        def full_clean(row: Schedule, **given: Any) -> None:
            if row.name == "a":
                raise OverflowError(SECRET)
            clean(row, **given)

        monkeypatch.setattr(Schedule, "full_clean", full_clean)
        done = bring_into_rows()
        assert (done.made, [*done.refused]) == (["b"], ["a"])
        assert "OverflowError" in done.refused["a"]
        assert SECRET not in done.refused["a"] + caplog.text

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"every": float("inf")}, "every=inf"),
            ({"every": float("nan")}, "every=nan"),
            ({"every": 5, "jitter": float("inf")}, "jitter=inf"),
            ({"every": 5, "start": datetime(9999, 12, 31, tzinfo=UTC)}, "start=.*years 1970 to 2999"),
            ({"every": 5, "end": datetime(9999, 12, 31, tzinfo=UTC)}, "end=.*leave it empty for none"),
            (
                {"every": 5, "start": datetime(2030, 1, 2, tzinfo=UTC), "end": datetime(2030, 1, 1, tzinfo=UTC)},
                "end must not be before start",
            ),
        ],
    )
    def test_what_no_clock_can_keep_is_refused_at_import(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidOption, match=said):
            schedule(add, args=[1], **given)

    def test_a_jitter_beyond_the_expiry_is_refused_at_import(self) -> None:
        with pytest.raises(InvalidOption, match="jitter is 3600 s and expires_after 10 s"):
            schedule(add.using(expires_after=10).bind(1), every=60, jitter=3600)
        schedule(add.using(expires_after=10).bind(1), every=60, jitter=9)


class TestRows:
    def test_no_value_makes_the_check_or_a_form_raise(self, store: Store) -> None:
        row = planned(name="x")
        planned(name="y")
        Schedule.objects.filter(pk=row.pk).update(task=odd.module_path, args=[])
        [message] = check_schedules(databases=["default"])
        assert "The schedule 'x' cannot fire: debounce has a key with the field 'opt'" in str(message)

    def test_nor_what_raises_what_nobody_expects(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        planned(name="x")

        def raises(*given: Any, **named: Any) -> Any:
            raise RuntimeError(SECRET)

        monkeypatch.setattr(jobs, "prepare", raises)
        [message] = check_schedules(databases=["default"])
        assert "RuntimeError was raised" in str(message)
        assert SECRET not in str(message)
        monkeypatch.setattr(Schedule, "full_clean", raises)
        [message] = check_schedules(databases=["default"])
        assert "RuntimeError was raised" in str(message)
        assert SECRET not in str(message)

    @pytest.mark.parametrize("name", ["start", "end"])
    def test_a_moment_at_the_end_of_time_is_refused(self, name: str) -> None:
        row = Schedule(name="far", task="tests.producing.add", args=[1], cron="0 0 * * *", zone="Asia/Kolkata")
        setattr(row, name, stored(datetime(9999, 12, 30, 12, tzinfo=UTC)))
        with pytest.raises(ValidationError) as raised:
            row.full_clean()
        assert "years 1970 to 2999; leave it empty" in str(raised.value.message_dict[name])

    def test_one_that_sql_wrote_is_set_aside_and_shown(self, store: Store) -> None:
        row = planned(name="far")
        Schedule.objects.filter(pk=row.pk).update(start=stored(datetime(9999, 12, 31, 23, 30, tzinfo=UTC)))
        assert fire_due(NOW)[0] == Passed(more=True)
        row.refresh_from_db()
        assert (row.next_ms, row.outcome) == (None, "refused")
        with pytest.raises(CommandError, match="far: it cannot be read: OverflowError; check its cron"):
            call_command("ductor", "schedules", "next", "far")

    def test_a_jitter_beyond_the_expiry_is_refused(self, store: Store) -> None:
        given: dict[str, Any] = {"name": "a", "task": "tests.producing.add", "args": [1], "every_seconds": 60}
        with pytest.raises(ValidationError) as raised:
            Schedule(**given, jitter_seconds=3600, options={"expires_after": 10}).full_clean()
        assert "expires_after 10 s" in str(raised.value.message_dict["jitter_seconds"])
        row = planned()
        Schedule.objects.update(jitter_seconds=3600, options={"expires_after": 10})
        assert fire() == Passed(refused=1)
        row.refresh_from_db()
        assert "before it may run" in row.note

    def test_a_field_that_says_nothing_is_not_in_the_digest(self) -> None:
        """So that a release which adds one plans nothing anew."""
        plain = Rule(cron="0 * * * *")
        assert plain.digest() == Rule(cron="0 * * * *", zone="UTC", anchor_ms=0, end_ms=None).digest()
        assert plain.digest() == hashlib.sha256(b'{"cron": "0 * * * *"}').hexdigest()[:22]
        assert len({plain.digest(), Rule(cron="0 * * * *", end_ms=1).digest(), Rule(every_ms=1000).digest()}) == 3


class TestSecrets:
    @pytest.fixture
    def broken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        error = RuntimeError(f"cannot connect to postgres://app:{SECRET}@db/shop")
        monkeypatch.setattr(discovery, "_broken", [BrokenModule(app="shop", module="shop.tasks", error=error)])

    def test_why_a_module_cannot_be_imported_is_not_kept(
        self, store: Store, broken: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        row = planned()
        Schedule.objects.update(task="shop.tasks.report")
        assert fire(NOW + GRACE) == Passed(refused=1)
        row.refresh_from_db()
        assert "No task is called 'shop.tasks.report' here" in row.note
        told = row.note + caplog.text + str(check_schedules(databases=["default"]))
        with pytest.raises(CommandError) as raised:
            call_command("ductor", "schedules", "fire", "hourly")
        assert SECRET not in told + str(raised.value)

    def test_of_a_foreign_exception_only_the_class_is_kept(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        row = planned()

        def raises(*given: Any, **named: Any) -> Any:
            raise RuntimeError(SECRET)

        monkeypatch.setattr(jobs, "prepare", raises)
        assert fire() == Passed(refused=1)
        row.refresh_from_db()
        assert row.note == "RuntimeError was raised while its job was made"
        assert SECRET not in caplog.text


class TestUnknownHere:
    """It may be another release's, or newer time zones': another scheduler has UNKNOWN_TASK_GRACE to fire it."""

    @pytest.mark.parametrize("cron", ["* * * * *", "0 * * * *"])
    @pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
    def test_the_grace_counts_from_the_first_firing_that_was_not_made(
        self, store: Store, cron: str, catch_up: str
    ) -> None:
        row = planned(cron=cron, catch_up=catch_up)
        Schedule.objects.update(task="tests.nowhere.gone")
        for late in (0, 2 * MINUTE, GRACE - 1):
            assert fire_due(NOW + late) == (Passed(), {row.pk: "hourly"})
        row.refresh_from_db()
        assert (row.next_ms, row.outcome) == (NOW, "")

        passed, unknown = fire_due(NOW + GRACE)

        assert (unknown, passed.fired, passed.late) == ({}, 0, 0)
        row.refresh_from_db()
        assert (row.outcome, row.next_ms) == ("refused", row.rule().after(NOW + GRACE))
        assert "No task is called" in row.note

    def test_who_knows_it_makes_up_for_what_the_rule_says(self, store: Store) -> None:
        row = planned(cron="* * * * *", catch_up="all")
        Schedule.objects.update(task="tests.nowhere.gone")
        fire_due(NOW + 14 * MINUTE)
        Schedule.objects.update(task="tests.producing.add")
        assert fire(NOW + 14 * MINUTE) == Passed(fired=2, late=13)
        row.refresh_from_db()
        assert row.next_ms == NOW + 15 * MINUTE

    def test_it_is_logged_once(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        planned()
        Schedule.objects.update(task="tests.nowhere.gone")
        clock = Clock()
        duty = Schedules(lambda: NOW, clock)
        for _ in range(4):
            duty.run()
            clock.now += ASIDE_S + 0.1
        assert caplog.text.count("left to other schedulers") == 1
        [told] = [each for each in caplog.records if "left to other" in each.message]
        assert told.__dict__["schedules"] == ["hourly"]

    def test_two_machines_with_other_time_zones_do_not_plan_against_each_other(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        row = planned(NOW + DAY, zone="Europe/Berlin")
        repair(NOW)
        before = Schedule.objects.values().get()
        with monkeypatch.context() as patched:
            _without_berlin(patched)
            repair(NOW)
            assert Schedule.objects.values().get() == before, "who knows it has planned it"
            assert fire_due(NOW + DAY) == (Passed(), {row.pk: "hourly"})
        assert Schedule.objects.values().get() == before
        assert caplog.text == ""
        assert fire(NOW + DAY).fired == 1

    def test_one_that_nobody_knows_is_set_aside_after_the_grace(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row = planned(zone="Europe/Berlin")
        with monkeypatch.context() as patched:
            _without_berlin(patched)
            assert fire_due(NOW + GRACE) == (Passed(more=True), {})
            row.refresh_from_db()
            assert (row.next_ms, row.plan, row.outcome) == (None, "", "refused")
            repair(NOW + GRACE)
        repair(NOW + GRACE)
        row.refresh_from_db()
        assert row.next_ms == NOW + HOUR, "and is planned by who comes to know it"

    def test_one_that_was_off_is_noted_at_once(self, store: Store) -> None:
        row = planned(zone="Europe/Berlin")
        row.enabled = False
        row.save()
        Schedule.objects.update(enabled=True, zone="Nowhere")
        repair(NOW)
        row.refresh_from_db()
        assert row.note == ("zone is 'Nowhere': it must be the name of a time zone, such as “Europe/Berlin” or “UTC”")


def _without_berlin(patched: pytest.MonkeyPatch) -> None:
    def zone_of(name: str) -> Any:
        if name == "Europe/Berlin":
            raise LookupError(name)
        return firings.zone_of(name)

    patched.setattr("queueapp.models.schedules.zone_of", zone_of)
