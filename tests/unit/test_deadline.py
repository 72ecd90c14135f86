"""The option `deadline`: which values there are, from when a duration counts, where it goes and who shows it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test.utils import override_settings

from queueapp import task
from queueapp.cli.job import as_text
from queueapp.errors import InvalidOption
from queueapp.inspection.facts import as_mapping
from queueapp.inspection.jobs import find_job, view
from queueapp.moments import now_ms
from queueapp.producer.preparation import prepare
from queueapp.store.records import Completed, Failed
from queueapp.store.store import Store
from queueapp.testing.memory import MemoryShard
from tests.producing import add

LATER = datetime(2099, 1, 31, 9, tzinfo=UTC)
LATER_MS = round(LATER.timestamp() * 1000)


def function() -> None: ...


def deadline_ms(**options: Any) -> int:
    return prepare(add.using(**options), (1,), {}).job.deadline_ms


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [0, -1, True, "soon", float("nan"), float("inf"), timedelta(0), 11 * 365 * 86_400, datetime(2030, 1, 1)],
    )
    def test_a_wrong_value_names_option_and_value(self, value: Any) -> None:
        with pytest.raises(InvalidOption, match=r"deadline is .*must be an aware datetime"):
            add.using(deadline=value)

    def test_a_task_has_a_duration_and_no_moment(self) -> None:
        assert task(deadline=timedelta(minutes=1))(function).deadline == 60.0
        with pytest.raises(InvalidOption, match=r"would fix that moment for every job; give seconds"):
            task(deadline=LATER)(function)  # type: ignore[call-overload]  # wrong on purpose

    def test_one_of_the_job_goes_before_that_of_the_task(self) -> None:
        made = task(deadline=60)(function)
        assert (made.using(deadline=LATER).deadline, made.using(deadline=None).deadline) == (LATER, 60.0)

    def test_a_naive_moment_passes_where_moments_are_naive(self) -> None:
        with override_settings(USE_TZ=False):
            naive = datetime(2099, 1, 31, 9)
            assert deadline_ms(deadline=naive) == round(naive.timestamp() * 1000)


class TestMoment:
    def test_without_one_there_is_none(self) -> None:
        assert deadline_ms() == 0

    def test_a_moment_is_itself(self) -> None:
        assert deadline_ms(deadline=LATER) == LATER_MS
        assert deadline_ms(deadline=LATER, run_after=LATER + timedelta(days=1)) == LATER_MS

    def test_one_before_the_epoch_is_not_taken_for_none(self) -> None:
        assert deadline_ms(deadline=datetime(1960, 1, 1, tzinfo=UTC)) == 1

    def test_a_duration_counts_from_the_call(self) -> None:
        before = now_ms()
        found = deadline_ms(deadline=timedelta(seconds=90))
        assert before + 90_000 <= found <= now_ms() + 90_000

    def test_but_from_the_moment_before_which_the_job_does_not_run(self) -> None:
        assert deadline_ms(deadline=90, run_after=LATER) == LATER_MS + 90_000

    def test_a_moment_that_has_passed_delays_nothing(self) -> None:
        before = now_ms()
        found = deadline_ms(deadline=90, run_after=datetime(2020, 1, 1, tzinfo=UTC))
        assert before + 90_000 <= found <= now_ms() + 90_000


class TestTold:
    def test_whoever_looks_at_a_waiting_job_is_told(self, store: Store) -> None:
        result = add.using(deadline=LATER).enqueue(1)

        job = find_job(result.id)
        assert job is not None
        assert job.deadline_at == LATER
        assert as_mapping(job, payload=False)["deadline_at"] == LATER
        assert "2099-01-31" in as_text(job, payload=False)

    def test_one_without_says_none(self, store: Store) -> None:
        job = find_job(add.enqueue(1).id)
        assert job is not None
        assert job.deadline_at is None
        assert "deadline" not in as_text(job, payload=False)

    def test_it_stays_through_retries_and_goes_with_the_end(self, store: Store) -> None:
        result = add.using(deadline=LATER, max_attempts=3).enqueue(1)
        job_id = result.id[-22:]

        def told() -> datetime | None:
            job = find_job(result.id)
            assert job is not None
            return job.deadline_at

        [leased] = store.check_and_lease("w1", 1, want=1, begin=1, lease_ms=30_000).jobs
        assert told() == LATER
        error = json.dumps({"class": "E", "message": "", "traceback": ""}).encode()
        store.fail([Failed(id=job_id, attempts=leased.attempts, run_ms=1, error=error, retry_ms=0)])
        store.promote_due()
        assert told() == LATER
        [leased] = store.check_and_lease("w1", 2, want=1, begin=1, lease_ms=30_000).jobs
        store.complete([Completed(id=job_id, attempts=leased.attempts, run_ms=1)])
        assert told() is None

    def test_a_redriven_dead_letter_drops_it(self, store: Store) -> None:
        result = add.using(deadline=LATER).enqueue(1)
        store.move_to_dlq([result.id[-22:]], "by_hand")
        dead = find_job(result.id)
        assert dead is not None
        assert dead.deadline_at == LATER

        store.retry_from_dlq([result.id[-22:]])
        again = find_job(result.id)
        assert again is not None
        assert (again.state, again.deadline_at) == ("pending", None)

    def test_jobs_in_memory_tell_it_too(self) -> None:
        shard = MemoryShard("default")
        job = prepare(add.using(deadline=LATER), (1,), {}).job
        shard.enqueue([job])
        record = shard.job(job.id)
        assert record is not None
        assert view("default", record).deadline_at == LATER
