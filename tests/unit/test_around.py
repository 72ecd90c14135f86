"""What one body leaves behind is not there for the next, and every record of a body knows its job."""

from __future__ import annotations

import asyncio
import logging
import threading
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from django.utils import timezone, translation

from queueapp import task
from queueapp.cli import logs
from queueapp.log_fields import JobFields, all_handlers, equip, running
from queueapp.management.commands import worker
from queueapp.store.store import Store
from queueapp.worker.faults import Faults, StandIn
from tests.working import work

seen: list[Any] = []
theirs: ContextVar[str] = ContextVar("theirs", default="untouched")
logger = logging.getLogger("shop.orders")


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def look() -> None:
    seen.append((threading.get_ident(), translation.get_language(), timezone.get_current_timezone_name(), theirs.get()))


@task
def changes_everything() -> None:
    look()
    translation.activate("ja")
    timezone.activate("Asia/Tokyo")
    theirs.set("changed")
    look()


@task
def fails_changed() -> None:
    translation.activate("ja")
    raise ValueError


@task
async def changes_asynchronously() -> None:
    look()
    translation.activate("ja")
    timezone.activate("Asia/Tokyo")
    theirs.set("changed")
    look()


@task
def looks() -> None:
    look()


@task
def tells() -> None:
    logger.warning("in the body", extra={"tenant": "its own"})


@task
async def tells_asynchronously() -> None:
    logger.warning("in the body")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first", ["changes_everything", "fails_changed"])
def test_language_and_zone_of_a_body_are_gone_for_the_next_in_its_thread(store: Store, first: str) -> None:
    globals()[first].enqueue()
    looks.enqueue()
    assert work(slots=1) == 2
    *before, (thread, language, zone, context) = seen
    assert (language, zone, context) == ("en-us", "UTC", "untouched")
    if before:
        assert before[1] == (thread, "ja", "Asia/Tokyo", "changed")


@pytest.mark.django_db(transaction=True)
def test_nor_does_one_coroutine_change_another(store: Store) -> None:
    for _ in range(3):
        changes_asynchronously.enqueue()
    looks.enqueue()
    assert work(slots=1) == 4
    begun = [entry[1:] for entry in seen if entry[1] != "ja"]
    assert begun == [("en-us", "UTC", "untouched")] * 4


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """What a handler of the host's gets, which the worker has found at its start."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[assignment, method-assign]  # stands in for it in this test
    logger.addHandler(handler)
    equip([handler])
    yield found
    logger.removeHandler(handler)


@pytest.mark.django_db(transaction=True)
def test_records_of_a_body_carry_its_job(store: Store, records: list[logging.LogRecord]) -> None:
    job = tells.using(tenant="acme").enqueue()
    other = tells_asynchronously.using(tenant="acme").enqueue()
    assert work(slots=1) == 2
    logger.warning("outside")
    fields = {record.__dict__.get("job_id"): record.__dict__ for record in records}
    assert set(fields) == {job.id, other.id, None}
    assert (fields[job.id]["task"], fields[job.id]["attempt"]) == (f"{__name__}.tells", 1)
    assert fields[job.id]["tenant"] == "its own", "what a record says itself stands"
    assert fields[other.id]["tenant"] == "acme"
    assert "tenant" not in fields[None]


def test_the_hosts_handlers_are_equipped_once(records: list[logging.LogRecord]) -> None:
    [handler] = logger.handlers
    assert handler in all_handlers()
    equip(all_handlers())
    assert [type(each) for each in handler.filters] == [JobFields]


def test_outside_of_a_body_nothing_is_running() -> None:
    assert running.get() is None


def test_a_form_that_was_asked_for_is_that_of_bodies_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    kept = [
        (each, each.handlers[:], each.propagate, each.level)
        for each in map(logging.getLogger, ("queueapp", "django.tasks"))
    ]
    try:
        logs.set_up("json", 1, "box-1")
        logger.warning("of the host")
        logging.getLogger("django.shouting").error("has handlers of its own")
        [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    finally:
        for each, handlers, propagate, level in kept:
            each.handlers, each.propagate = handlers, propagate
            each.setLevel(level)
    assert '"message": "of the host"' in line
    assert '"worker": "box-1"' in line


# -- --exec -----------------------------------------------------------------------------------------------------------


@task
def never() -> None:
    raise AssertionError("the body ran")


@task
async def never_asynchronously() -> None:
    raise AssertionError("the body ran")


@pytest.mark.django_db(transaction=True)
def test_with_a_stand_in_no_body_runs_and_every_job_is_completed(store: Store) -> None:
    jobs = [never.enqueue(), never_asynchronously.enqueue()]
    assert work(slots=1, faults=Faults(stand_in=StandIn("sleep", 0))) == 2
    for job in jobs:
        job.refresh()
        assert (job.status, job.return_value) == ("SUCCESSFUL", None)


def given() -> str:
    return "the body"


async def agiven() -> str:
    return "the body"


def test_without_a_stand_in_the_body_is_called() -> None:
    assert Faults().body(given, given)() == "the body"


@pytest.mark.parametrize("stand_in", [StandIn("sleep", 0), StandIn("cpu", 0.2)])
def test_a_stand_in_takes_the_bodys_place(stand_in: StandIn) -> None:
    faults = Faults(stand_in=stand_in)
    assert faults.body(given, given)() is None
    assert asyncio.run(faults.body(agiven, agiven)()) is None


@pytest.mark.parametrize(
    ("text", "stand_in"),
    [("sleep", StandIn("sleep", 1)), ("cpu:0.5", StandIn("cpu", 0.5)), ("sleep:20", StandIn("sleep", 20))],
)
def test_how_the_command_takes_it(text: str, stand_in: StandIn) -> None:
    assert worker.stand_in(text) == stand_in


@pytest.mark.parametrize("text", ["", "nap", "sleep:", "cpu:-1", "cpu:x"])
def test_what_the_command_does_not_take(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        worker.stand_in(text)


def test_computing_takes_time_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([1.0, 1.002, 1.004, 1.006])
    monkeypatch.setattr("time.thread_time", lambda: next(now))
    StandIn("cpu", 5).spend()
    assert next(now, None) is None
