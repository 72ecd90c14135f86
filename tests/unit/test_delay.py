"""`delay`: seconds from the call, which the server's clock turns into a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from django.db import transaction

from queueapp import enqueue_many, task
from queueapp.errors import InvalidOption
from queueapp.producer.options import InvalidTaskOption
from queueapp.producer.preparation import prepare
from queueapp.store import ids
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.producing import add

LATER = datetime(2100, 1, 1, tzinfo=UTC)

Due = Callable[[str], int]


@pytest.fixture
def due_in(redis_client: redis.Redis, reads: Reads) -> Due:
    """Milliseconds until a job is due, on the server's clock."""

    def ask(public_id: str) -> int:
        record = reads.job(public_id[-22:])
        assert record is not None
        seconds, microseconds = redis_client.time()
        return record.due_ms - (seconds * 1000 + microseconds // 1000)

    return ask


@pytest.fixture(params=[-120, 120], ids=["slow", "fast"])
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this process is two minutes off; the server's is not."""
    right, right_ns, off = time.time, time.time_ns, request.param
    # Ids never step back: those made ahead of the clock would push every later one of this process ahead, too.
    monkeypatch.setattr(ids, "_sequence", ids._Sequence())
    monkeypatch.setattr(time, "time", lambda: right() + off)
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + off * 1_000_000_000)


@pytest.mark.usefixtures("wrong_clock")
@pytest.mark.parametrize("way", ["enqueue", "enqueue_many"])
def test_c107_a_delay_is_counted_by_the_servers_clock(store: Store, due_in: Due, way: str) -> None:
    """C107: 'in 3 seconds' became minutes because web and worker clocks differ."""
    later = add.using(delay=3)
    if way == "enqueue":
        result = later.enqueue(1)
    else:
        [outcome] = enqueue_many([later.bind(1)])
        assert outcome.result is not None
        result = outcome.result

    assert result.state == "scheduled"
    assert 0 < due_in(result.id) <= 3_000
    assert store.promote_due().pending == 0


@pytest.mark.usefixtures("wrong_clock")
def test_c107_an_async_call_too(due_in: Due) -> None:
    result = asyncio.run(add.using(delay=3).aenqueue(1))
    assert 0 < due_in(result.id) <= 3_000


@pytest.mark.usefixtures("wrong_clock")
@pytest.mark.django_db(transaction=True)
def test_c107_after_a_commit_too_and_it_counts_from_the_call(due_in: Due, monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction.atomic():
        result = add.using(delay=60).enqueue(1)
        right = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: right() + 20)  # the transaction takes its time
    assert 30_000 < due_in(result.id) <= 40_000


@pytest.mark.django_db(transaction=True)
def test_a_delay_that_is_over_at_the_commit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction.atomic():
        result = add.using(delay=10).enqueue(1)
        right = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: right() + 20)
    result.refresh()
    assert result.state == "pending"


@pytest.mark.parametrize(
    ("given", "delay_ms"), [(3, 3000), (0.25, 250), (timedelta(minutes=1), 60_000), (0, 0), (None, 0)]
)
def test_what_it_may_be(given: Any, delay_ms: int) -> None:
    assert prepare(add.using(delay=given), (1,), {}).job.delay_ms == delay_ms


@pytest.mark.parametrize("given", [-1, True, "3", float("nan"), float("inf"), timedelta(days=4000), LATER])
def test_what_it_may_not_be(given: Any) -> None:
    with pytest.raises(InvalidTaskOption, match=r"^delay is .*: it must be seconds \(or a timedelta\) from 0"):
        add.using(delay=given)


def test_a_job_has_a_delay_or_a_moment() -> None:
    for one in (add.using(delay=3), add.using(run_after=LATER)):
        with pytest.raises(InvalidTaskOption, match=r"^delay is 3 and run_after is 2100-01-01"):
            one.using(delay=3, run_after=LATER)
    with pytest.raises(InvalidTaskOption, match=r"^delay is 3 and run_after is"):
        add.using(delay=3).using(run_after=LATER)


def test_it_is_an_option_of_one_job_not_of_a_task() -> None:
    with pytest.raises(InvalidOption, match=r"@task\(delay=...\) is an option of one job; give it to .using\(\)"):
        task(delay=3)  # type: ignore[call-overload]  # wrong on purpose


def test_a_deadline_in_seconds_counts_from_when_it_may_run() -> None:
    job = prepare(add.using(delay=60, deadline=10), (1,), {}).job
    assert abs(job.deadline_ms - time.time() * 1000 - 70_000) < 5_000
