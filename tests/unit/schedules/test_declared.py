"""Schedules that code declares: refused at import where they are wrong, and in rows from the next scheduler's start."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queueapp import backoff, schedule
from queueapp.errors import DuctorError, InvalidOption
from queueapp.models import Schedule
from queueapp.producer import discovery
from queueapp.producer.discovery import BrokenModule
from queueapp.schedules.declared import registry
from queueapp.schedules.rows import bring_into_rows
from tests.producing import add, attempt, chosen

NIGHTLY = "30 2 * * *"
Source = Schedule.Source


class TestDeclaring:
    def test_as_a_decorator_it_leaves_the_task(self) -> None:
        assert schedule(cron=NIGHTLY)(chosen) is chosen
        made = registry["tests.producing.chosen"]
        assert (made.task, made.cron, made.options, made.lane) == ("tests.producing.chosen", NIGHTLY, {}, "")

    def test_options_and_arguments_come_from_the_task(self) -> None:
        copy = add.using(
            tenant="acme",
            priority=3,
            lane="mail",
            cost=2,
            max_attempts=4,
            backoff=backoff.fixed(9),
            metadata={"a": (1,)},
        )
        schedule(copy.bind(1, b=(2, 3)), name="acme's", every=timedelta(minutes=5), zone="Europe/Berlin", jitter=30)
        made = registry["acme's"]
        assert (made.args, made.kwargs) == ([1], {"b": [2, 3]})
        assert (made.tenant, made.priority, made.lane, made.pool) == ("acme", 3, "mail", "")
        assert made.options == {"cost": 2.0, "max_attempts": 4, "backoff": {"delay": 9.0}, "metadata": {"a": [1]}}
        assert (made.every_seconds, made.jitter_seconds, made.zone) == (300, 30, "Europe/Berlin")

    def test_a_task_with_a_context_gets_it_from_the_worker(self) -> None:
        schedule(attempt, cron=NIGHTLY)
        assert registry["tests.producing.attempt"].args == []

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({}, r"cron=\.\.\., every=\.\.\.\): give one"),
            ({"cron": NIGHTLY, "every": 5}, "give one of the two"),
            ({"cron": "61 * * * *"}, r"cron='61 \* \* \* \*'\): it must be five fields"),
            ({"cron": NIGHTLY, "zone": "Berlin"}, r"zone='Berlin'\): it must be the name of a time zone"),
            ({"cron": NIGHTLY, "tz": "UTC"}, r"schedule\(tz=\.\.\.\) is not an option; did you mean zone"),
            ({"interval": 5}, "did you mean every"),
            ({"cron": NIGHTLY, "tenant": "a"}, r"give it to the task: schedule\(task\.using\(tenant"),
            ({"every": 0}, r"every=0\): it must be whole seconds \(or a timedelta\) from 1 to 31,622,400"),
            ({"every": 1.5}, "whole seconds"),
            ({"every": True}, "whole seconds"),
            ({"cron": NIGHTLY, "jitter": -1}, "jitter=-1"),
            ({"cron": NIGHTLY, "catch_up": "none"}, "catch_up='none'.*'skip' or 'one' or 'all'"),
            ({"cron": NIGHTLY, "overlap": "wait"}, "overlap='wait'.*'allow' or 'skip' or 'replace'"),
            ({"cron": NIGHTLY, "start": datetime(2030, 1, 1)}, "start=.*aware datetime"),
            ({"cron": NIGHTLY, "name": ""}, "name=''.*1 to 100 characters"),
            ({"cron": NIGHTLY, "args": "ab"}, "args must be a list"),
            ({"cron": NIGHTLY, "args": [1, 2, 3]}, r"do not fit tests\.producing\.add"),
        ],
    )
    def test_what_is_wrong_is_refused_at_once(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidOption, match=said):
            schedule(add, **({"args": [1]} | given))
        assert registry == {}

    def test_what_no_row_can_keep_is_refused(self) -> None:
        with pytest.raises(DuctorError, match=r"args\[0\]"):
            schedule(add, cron=NIGHTLY, args=[datetime(2030, 1, 1, tzinfo=UTC)])
        for given in ({"run_after": datetime(2030, 1, 1, tzinfo=UTC)}, {"idempotency_key": "k"}):
            with pytest.raises(InvalidOption, match="a schedule cannot keep it"):
                schedule(add.using(**given).bind(1), cron=NIGHTLY)
        with pytest.raises(InvalidOption, match="must be a task"):
            schedule(len, cron=NIGHTLY)  # type: ignore[call-overload]  # wrong on purpose
        with pytest.raises(InvalidOption, match="arguments once"):
            schedule(add.bind(1), args=[1], cron=NIGHTLY)

    def test_a_name_stands_for_one(self) -> None:
        schedule(add, args=[1], cron=NIGHTLY)
        schedule(add, args=[1], cron=NIGHTLY)
        with pytest.raises(InvalidOption, match=r"declared twice.*another name"):
            schedule(add, args=[2], cron=NIGHTLY)


@pytest.mark.django_db(transaction=True)
class TestRows:
    def test_they_are_made_and_changed_and_left_alone(self) -> None:
        start = datetime(2020, 1, 1, tzinfo=UTC)
        schedule(add.using(tenant="acme").bind(1), name="a", cron=NIGHTLY, start=start, overlap="skip")
        assert bring_into_rows().made == ["a"]
        row = Schedule.objects.get()
        assert (row.task, row.args, row.tenant, row.cron, row.overlap) == (
            *("tests.producing.add", [1], "acme", NIGHTLY, "skip"),
        )
        assert (row.source, row.enabled, row.rule().start_ms) == (Source.CODE, True, round(start.timestamp() * 1000))
        assert row.next_at is not None

        done = bring_into_rows()
        assert (done.made, done.changed, done.gone, done.returned, done.refused) == ([], [], [], [], {})

        registry.clear()
        schedule(add.using(tenant="acme").bind(2), name="a", cron="0 5 * * *")
        assert bring_into_rows().changed == ["a"]
        row = Schedule.objects.get()
        assert (row.args, row.cron, row.overlap, row.start) == ([2], "0 5 * * *", "allow", None)
        assert row.plan == row.planned()

    def test_what_is_declared_no_longer_is_off_and_comes_back_as_it_was(self, caplog: pytest.LogCaptureFixture) -> None:
        schedule(add, args=[1], name="on", cron=NIGHTLY)
        schedule(add, args=[1], name="off", cron=NIGHTLY)
        declared = dict(registry)
        bring_into_rows()
        Schedule.objects.filter(name="off").update(enabled=False)
        registry.clear()

        assert sorted(bring_into_rows().gone) == ["off", "on"]
        assert "no longer declared" in caplog.text
        for row in Schedule.objects.all():
            assert (row.source, row.enabled, row.next_ms) == (Source.GONE, False, None)

        registry.update(declared)
        assert sorted(bring_into_rows().returned) == ["off", "on"]
        assert {row.name: row.enabled for row in Schedule.objects.all()} == {"on": True, "off": False}
        assert {row.source for row in Schedule.objects.all()} == {Source.CODE}

    def test_a_row_of_the_admin_keeps_its_name(self, caplog: pytest.LogCaptureFixture) -> None:
        Schedule.objects.create(name="a", task="tests.producing.add", args=[7], cron=NIGHTLY)
        schedule(add, args=[1], name="a", cron="0 5 * * *")
        assert "rename one of the two" in bring_into_rows().refused["a"]
        assert Schedule.objects.get().args == [7]
        assert "not in force" in caplog.text

    def test_a_module_that_cannot_be_imported_turns_nothing_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schedule(add, args=[1], name="a", cron=NIGHTLY)
        bring_into_rows()
        registry.clear()
        broken = [BrokenModule(app="shop", module="shop.tasks", error=ImportError("x"))]
        monkeypatch.setattr(discovery, "_broken", broken)
        assert bring_into_rows().gone == []
        assert Schedule.objects.get().enabled

    def test_one_whose_job_would_be_refused_costs_the_others_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.ERROR)
        schedule(add.using(queue_name="no-such-pool").bind(1), name="bad", cron=NIGHTLY)
        schedule(add, args=[1], name="good", cron=NIGHTLY)
        done = bring_into_rows()
        assert done.made == ["good"]
        assert "no-such-pool" in done.refused["bad"]
