"""What people do by hand: firing, turning on and off, from the terminal; and what the checks say of rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from queueapp import Singleton, task
from queueapp.database_checks import check_schedules
from queueapp.errors import InvalidOption, StoreUnavailable, Throttled, UnknownTask
from queueapp.models import OutboxEntry, Schedule
from queueapp.moments import now_ms
from queueapp.schedules import acts
from queueapp.schedules.acts import Overlaps
from queueapp.states import Outcome
from queueapp.store.configuration import Rate, ScopeLimits
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.producing import run_waiting
from tests.unit.outbox.away import store_away
from tests.unit.schedules.conftest import HOUR, NOW, fire, planned, relay_all

pytestmark = pytest.mark.django_db(transaction=True)


@task(singleton=Singleton("one"))
def single() -> None: ...


def _die(*given: Any) -> Any:
    raise SystemExit


def ductor(*arguments: str) -> str:
    out = StringIO()
    call_command("ductor", "schedules", *arguments, stdout=out)
    return out.getvalue()


class TestFire:
    def test_makes_one_more_and_leaves_the_next(self, store: Store, reads: Reads) -> None:
        row = planned(enabled=True, tenant="acme")
        result = acts.fire(row, by="me")
        row.refresh_from_db()
        assert (row.next_ms, row.last_ms, row.last_job, row.note) == (NOW, None, result.id, "fired by hand")
        assert result.metadata["schedule"] == "hourly"
        assert reads.overview().waiting == 1
        assert fire().fired == 1

    def test_works_while_it_is_off(self, store: Store) -> None:
        row = planned()
        acts.switch([row], on=False)
        assert acts.fire(Schedule.objects.get()).id

    @pytest.mark.parametrize("overlap", ["skip", "replace"])
    def test_holds_to_the_rule_of_overlap(self, store: Store, reads: Reads, overlap: str) -> None:
        planned(overlap=overlap)
        first = acts.fire(Schedule.objects.get())
        if overlap == "skip":
            with pytest.raises(Overlaps, match="is not over"):
                acts.fire(Schedule.objects.get())
        else:
            second = acts.fire(Schedule.objects.get())
            record = reads.job(first.id[-22:])
            assert record is not None
            assert record.outcome is Outcome.CANCELLED
            store.check_and_lease("w", 1, want=1, begin=1, lease_ms=60_000)
            acts.fire(Schedule.objects.get())
            told = reads.job(second.id[-22:])
            assert told is not None
            assert told.cancelling
            assert store.check_and_lease("w", 2, want=1, begin=1, lease_ms=60_000).jobs == [], "it waits for its end"

    def test_what_was_fired_by_hand_counts_as_the_last(self, store: Store) -> None:
        planned(overlap="skip")
        acts.fire(Schedule.objects.get())
        assert fire().skipped == 1
        run_waiting(store)
        assert fire(NOW + HOUR).fired == 1

    @pytest.mark.parametrize("overlap", ["skip", "replace"])
    def test_two_clicks_at_once_make_one_job(self, store: Store, reads: Reads, overlap: str) -> None:
        row = planned(overlap=overlap)
        first, second = Schedule.objects.get(), Schedule.objects.get()
        result = acts.fire(first)
        with pytest.raises(Overlaps, match="has been fired since"):
            acts.fire(second)
        assert (reads.overview().waiting, OutboxEntry.objects.count()) == (1, 0)
        row.refresh_from_db()
        assert row.last_job == result.id

    def test_without_a_rule_both_do(self, store: Store, reads: Reads) -> None:
        planned()
        first, second = Schedule.objects.get(), Schedule.objects.get()
        acts.fire(first)
        acts.fire(second)
        assert reads.overview().waiting == 2

    def test_who_dies_after_it_is_written_down_leaves_the_job_to_the_relay(
        self, store: Store, reads: Reads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row = planned(overlap="skip")
        with monkeypatch.context() as patched:
            patched.setattr(acts, "send_each", _die)
            with pytest.raises(SystemExit):
                acts.fire(row)
        row.refresh_from_db()
        with pytest.raises(Overlaps):
            acts.fire(row)
        relay_all()
        assert reads.job(row.last_job[-22:]) is not None

    def test_a_store_that_goes_away_in_between_gets_the_job_later(
        self, store: Store, reads: Reads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(acts, "send_each", lambda given: [StoreUnavailable("away")])
            result = acts.fire(planned())
        assert (result.outcome, reads.overview().waiting) == ("deferred", 0)
        relay_all()
        assert reads.job(result.id[-22:]) is not None

    def test_what_the_store_refuses_leaves_no_trace(self, store: Store, reads: Reads) -> None:
        row = planned(tenant="acme")
        store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=3_600_000))])
        first = acts.fire(row)
        row.refresh_from_db()
        fired_ms = row.fired_ms
        with pytest.raises(Throttled):
            acts.fire(row)
        row.refresh_from_db()
        assert (row.last_job, row.fired_ms, OutboxEntry.objects.count()) == (first.id, fired_ms, 0)
        assert reads.overview().waiting == 1

    def test_of_a_singleton_the_job_that_is_there_is_the_last_one(self, store: Store) -> None:
        row = planned(task=single.module_path, args=[])
        first = acts.fire(row)
        assert acts.fire(row).id == first.id
        row.refresh_from_db()
        assert row.last_job == first.id

    def test_a_foreign_exception_is_told_by_its_class(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        def raises(*given: Any) -> Any:
            raise RuntimeError("s3cret")

        monkeypatch.setattr(acts, "prepare", raises)
        with pytest.raises(InvalidOption) as raised:
            acts.fire(planned())
        assert str(raised.value) == "“hourly” was not fired: RuntimeError was raised while its job was made."

    def test_a_schedule_that_is_gone_is_not_fired(self, store: Store, reads: Reads) -> None:
        row = planned()
        stale = Schedule.objects.get()
        row.delete()
        with pytest.raises(Overlaps, match="deleted"):
            acts.fire(stale)
        assert reads.overview().waiting == 0

    def test_says_what_is_wrong_at_once(self, store: Store) -> None:
        row = planned()
        with store_away(), pytest.raises(StoreUnavailable):
            acts.fire(row)
        row.task = "tests.nowhere.gone"
        with pytest.raises(UnknownTask):
            acts.fire(row)
        assert Schedule.objects.get().last_job == ""


def test_what_left_the_code_stays_off(store: Store) -> None:
    """However it is asked for: the next scheduler that starts would turn it off again."""
    row = planned(name="gone")
    Schedule.objects.update(source="gone", enabled=False)
    row.refresh_from_db()
    assert acts.switch([row], on=True) == []
    assert ductor("on", "gone").strip() == "0 turned on. No longer declared in code, and so off: gone."
    row.refresh_from_db()
    assert not row.enabled


def test_one_that_sql_made_unreadable_can_be_turned_off_and_not_on(store: Store) -> None:
    planned(name="a")
    planned(name="bad")
    planned(name="c")
    Schedule.objects.filter(name="bad").update(zone="Nowhere")
    assert ductor("off", "a", "bad", "c").strip() == "3 turned off."
    with pytest.raises(CommandError, match="“bad” was not turned on: zone is 'Nowhere': it must be the name of a"):
        ductor("on", "a", "bad", "c")
    assert [row.enabled for row in Schedule.objects.order_by("name")] == [True, False, True]


def test_turned_on_it_makes_up_for_nothing(store: Store) -> None:
    row = planned()
    assert acts.switch([row], on=False, by="me") == [row]
    assert acts.switch([row], on=False) == []
    acts.switch([row], on=True)
    row.refresh_from_db()
    assert row.next_ms is not None
    assert row.next_ms > now_ms()


class TestTerminal:
    def test_list(self, store: Store) -> None:
        assert ductor("list").strip() == "No schedules."
        planned(name="b", every_seconds=90)
        planned(name="a", args=["a-secret"])
        off = planned(name="off")
        acts.switch([off], on=False)
        shown = ductor("list")
        assert [line.split()[0] for line in shown.splitlines()] == ["name", "a", "b", "off"]
        assert "every 90 s" in shown
        assert "0 * * * * UTC" in shown
        told = json.loads(ductor("list", "--json"))
        assert [each["name"] for each in told] == ["a", "b", "off"]
        assert (told[0]["next_at"], told[2]["next_at"], told[2]["enabled"]) == (
            "2025-06-01T12:00:00+00:00",
            None,
            False,
        )
        assert "a-secret" not in shown + json.dumps(told)

    def test_next(self, store: Store) -> None:
        planned(name="x y", zone="Asia/Kolkata")
        assert ductor("next", "x y", "--count", "2").splitlines() == [
            "Sun 2025-06-01 18:00:00 +0530",
            "Sun 2025-06-01 19:00:00 +0530",
        ]
        acts.switch(Schedule.objects.all(), on=False)
        assert "It is off" in ductor("next", "x y")

    def test_fire_on_off(self, store: Store, reads: Reads) -> None:
        planned(name="a")
        assert ductor("fire", "a").startswith("Fired: job ")
        assert reads.overview().waiting == 1
        assert ductor("off", "a").strip() == "1 turned off."
        assert not Schedule.objects.get().enabled
        assert ductor("on", "a", "a").strip() == "1 turned on."

    def test_a_name_that_is_none(self) -> None:
        with pytest.raises(CommandError, match=r"No schedule is called 'x'; there are: none\."):
            ductor("fire", "x")


class TestRows:
    @pytest.mark.parametrize(
        ("values", "field", "said"),
        [
            ({"cron": ""}, "cron", "both empty: give one of the two"),
            ({"every_seconds": 5}, "cron", "both given"),
            ({"cron": "61 * * * *"}, "cron", "cron “61 * * * *” is not allowed: it must be five fields"),
            ({"zone": "Berlin"}, "zone", "time zone “Berlin” is not allowed"),
            ({"cron": "", "every_seconds": 0}, "every_seconds", "interval 0 is not allowed: use a number from 1"),
            ({"jitter_seconds": 100_000}, "jitter_seconds", "jitter 100000 is not allowed"),
            ({"task": "tests.nowhere.gone"}, "task", "task “tests.nowhere.gone” is not known"),
            ({"args": [1, 2, 3]}, "kwargs", "do not fit tests.producing.add"),
            ({"args": {"a": 1}}, "args", "arguments must be a list"),
            ({"kwargs": [1]}, "kwargs", "kwargs must be an object"),
            ({"tenant": "_ours"}, "tenant", "not beginning with “_”"),
            ({"pool": "nowhere"}, "pool", "'nowhere' is not a known pool"),
            ({"priority": 101}, "priority", "priority is 101"),
            ({"options": {"run_after": 1}}, "options", "options has 'run_after'"),
            ({"options": {"cost": -1}}, "options", "cost is -1"),
            ({"options": {"deadline": "2030-01-01"}}, "options", "deadline is '2030-01-01': it must be seconds"),
            ({"options": {"backoff": {"x": 1}}}, "options", "backoff has 'x'"),
            ({"options": {"backoff": {"delay": 1, "zzz": 2}}}, "options", "backoff has 'zzz'"),
            ({"options": {"backoff": {"jitter": "no"}}}, "options", "jitter='no'): it must be True or False"),
            ({"options": {"backoff": {"factor": "2"}}}, "options", "factor='2'"),
            ({"options": {"backoff": {"delay": []}}}, "options", "backoff.fixed(delay) is []"),
            ({"args": ["x" * 300_000]}, "args", "MAX_PAYLOAD_BYTES"),
        ],
    )
    def test_what_is_wrong_is_told_with_field_value_and_remedy(
        self, values: dict[str, Any], field: str, said: str
    ) -> None:
        given: dict[str, Any] = {"name": "a", "task": "tests.producing.add", "args": [1], "cron": "0 3 * * *"}
        with pytest.raises(ValidationError) as raised:
            Schedule(**given | values).full_clean()
        assert any(said in text for text in raised.value.message_dict[field]), raised.value.message_dict

    def test_end_before_start(self) -> None:
        zone = UTC if settings.USE_TZ else None
        row = Schedule(name="a", task="tests.producing.add", args=[1], cron="0 3 * * *")
        row.start, row.end = datetime(2030, 1, 2, tzinfo=zone), datetime(2030, 1, 1, tzinfo=zone)
        with pytest.raises(ValidationError, match="give a later one"):
            row.full_clean()

    def test_one_whose_job_would_be_refused_can_be_turned_off(self, store: Store) -> None:
        row = planned()
        row.task, row.enabled = "tests.nowhere.gone", False
        row.full_clean()

    def test_a_rule_without_a_firing_has_no_next(self, store: Store) -> None:
        row = planned()
        row.end = datetime(2025, 1, 1, tzinfo=UTC if settings.USE_TZ else None)
        row.save()
        assert (row.next_ms, row.upcoming()) == (None, [])


class TestChecks:
    def test_a_row_whose_job_would_be_refused(self, store: Store) -> None:
        planned(name="good")
        bad = planned(name="bad")
        Schedule.objects.filter(pk=bad.pk).update(task="tests.nowhere.gone", zone="Nowhere")
        messages = check_schedules(databases=["default"])
        assert {message.id for message in messages} == {"queueapp.W041"}
        text = " ".join(str(message) for message in messages)
        assert "The schedule 'bad' cannot fire: time zone “Nowhere” is not allowed" in text
        assert "Correct its zone in the admin, or turn it off." in text
        assert check_schedules(databases=None) == []

    def test_what_is_off_is_left_alone_but_for_what_left_the_code(self, store: Store) -> None:
        row = planned()
        Schedule.objects.update(task="tests.nowhere.gone", enabled=False)
        assert check_schedules(databases=["default"]) == []
        Schedule.objects.filter(pk=row.pk).update(source="gone")
        [message] = check_schedules(databases=["default"])
        assert message.id == "queueapp.W042"
