"""Running, and reading results: a real worker, a real store."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.test.utils import override_settings

from queueapp import backoff
from queueapp.backend import DuctorBackend
from queueapp.compat import TASKS_LOGGER, Task, TaskResultDoesNotExist, TaskResultStatus, task_backends
from queueapp.errors import JobCancelled, JobDead, JobExpired, UnserialisableArgument
from queueapp.producer.results import DuctorResult
from queueapp.producer.task import DuctorTask
from queueapp.store.ids import new_id
from queueapp.store.records import NewJob
from queueapp.store.store import Store
from queueapp.worker.context import JobContext
from tests.conformance import jobs
from tests.conformance.conftest import Signalled
from tests.working import work

pytestmark = pytest.mark.compat

TaskResultMismatch: type[Exception] = import_module(
    Task.__module__.rpartition(".")[0] + ".exceptions"
).TaskResultMismatch
OURS = {"BACKEND": "queueapp.backend.DuctorBackend"}


def run(made: DuctorTask, *args: Any) -> DuctorResult:
    """Enqueues a job, has a worker run it, refreshes the handle."""
    result = made.enqueue(*args)
    work()
    result.refresh()
    return result


def stored(store: Store, task: str, payload: bytes = b"{}") -> str:
    """A job as another process could have written it; its public id."""
    job = NewJob(id=new_id(), task=task, tenant="a", payload=payload, fingerprint="f" * 16)
    store.enqueue([job])
    return store.keys.public_id(job.id)


class TestRefresh:
    @pytest.mark.parametrize("asynchronous", [False, True])
    @pytest.mark.parametrize("made", [jobs.answer, jobs.answer_async])
    def test_a_handle_changes_only_when_it_is_refreshed(self, made: DuctorTask, asynchronous: bool) -> None:
        result = made.enqueue()
        assert work() == 1
        assert (result.status, result.attempts, result.started_at) == (TaskResultStatus.READY, 0, None)
        asyncio.run(result.arefresh()) if asynchronous else result.refresh()

        assert (result.status, result.is_finished, result.return_value) == (TaskResultStatus.SUCCESSFUL, True, 42)
        assert (result.attempts, len(result.worker_ids), result.errors) == (1, 1, [])
        assert result.enqueued_at is not None
        assert result.started_at is not None
        assert result.finished_at is not None
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert result.last_attempted_at == result.started_at

    def test_a_job_that_waits_refreshes_to_the_same(self) -> None:
        result = jobs.noop.enqueue(1, two=2)
        result.refresh()

        assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [1], {"two": 2})


class TestGetResult:
    def test_of_the_task_and_of_the_backend(self) -> None:
        result = jobs.noop.enqueue(1)
        for read in (
            jobs.noop.get_result(result.id),
            task_backends["default"].get_result(result.id),
            asyncio.run(jobs.noop.aget_result(result.id)),
            asyncio.run(task_backends["default"].aget_result(result.id)),
        ):
            assert (read.id, read.task.func, read.args, read.status) == (result.id, jobs.noop.func, [1], "READY")

    def test_of_another_task(self) -> None:
        result = jobs.noop_async.enqueue()
        with pytest.raises(TaskResultMismatch, match="does not match"):
            jobs.noop.get_result(result.id)
        with pytest.raises(TaskResultMismatch, match="does not match"):
            asyncio.run(jobs.noop.aget_result(result.id))

    def test_of_the_same_task_with_other_options(self) -> None:
        result = jobs.noop.using(priority=5, tenant="acme").enqueue()

        assert jobs.noop.get_result(result.id).task.priority == 5

    @pytest.mark.parametrize("wrong", ["123", "", "0" * 32, "6f1c1c4e-4c0a-4f9e-8b39-0a4b7ad1f0aa"])
    def test_of_what_does_not_exist(self, wrong: str) -> None:
        with pytest.raises(TaskResultDoesNotExist):
            jobs.noop.get_result(wrong)
        with pytest.raises(TaskResultDoesNotExist):
            asyncio.run(jobs.noop.aget_result(wrong))

    @pytest.mark.parametrize("path", ["subprocess.check_output", "missing.module.function", "nodots"])
    def test_a_path_that_is_no_task_can_be_read_and_is_never_run(self, path: str, store: Store) -> None:
        result_id = stored(store, path)
        assert work() == 0

        read = task_backends["default"].get_result(result_id)
        assert read.task.module_path.endswith(path)
        assert read.status == TaskResultStatus.READY

    def test_after_its_queue_left_the_settings(self) -> None:
        with override_settings(TASKS={"default": {**OURS, "QUEUES": ["default", "one"]}}):
            result = jobs.noop.using(queue_name="one").enqueue()
            with override_settings(TASKS={"default": {**OURS, "QUEUES": ["other"]}}):
                assert jobs.noop.get_result(result.id).task.queue_name == "one"


class TestFailures:
    @pytest.mark.parametrize(
        ("made", "raised", "words"),
        [
            (jobs.raises_value_error, ValueError, "ValueError: this job failed"),
            (jobs.leaves, SystemExit, "SystemExit: this job wants out"),
            (jobs.leaves_async, SystemExit, "SystemExit: this job wants out"),
            (jobs.interrupts, KeyboardInterrupt, "KeyboardInterrupt"),
        ],
    )
    def test_whatever_is_raised_fails_the_job_and_not_the_worker(
        self, made: DuctorTask, raised: type[BaseException], words: str
    ) -> None:
        result, after = made.enqueue(), jobs.answer.enqueue()
        assert work() == 2
        result.refresh()
        after.refresh()

        assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.FAILED, True, 1)
        with pytest.raises(ValueError, match="failed"):
            _ = result.return_value
        [error] = result.errors
        assert error.exception_class is raised
        assert error.traceback.startswith("Traceback (most recent call last):\n")
        assert error.traceback.rstrip().endswith(words)
        assert None not in (result.started_at, result.last_attempted_at, result.finished_at)
        assert after.return_value == 42

    def test_an_exception_of_odd_arguments_and_a_cause(self) -> None:
        [error] = run(jobs.raises_in_a_chain).errors

        assert error.exception_class is jobs.Odd
        assert "ValueError('inner')" in error.traceback
        assert "KeyError: 'missing'" in error.traceback

    def test_an_exception_whose_class_is_not_there(self) -> None:
        [error] = run(jobs.raises_what_cannot_be_imported).errors

        assert error.exception_class_path == "tests.conformance.gone.Vanished"
        with pytest.raises(ImportError):
            _ = error.exception_class

    def test_an_exception_whose_path_leads_to_something_else(self) -> None:
        [error] = run(jobs.raises_what_is_no_exception_by_its_path).errors

        with pytest.raises(ValueError, match="does not reference a valid exception"):
            _ = error.exception_class

    def test_arguments_that_do_not_fit(self) -> None:
        [error] = run(jobs.answer, "one too many").errors

        assert error.exception_class is TypeError

    @pytest.mark.parametrize("made", [jobs.returns_what_is_no_json, jobs.returns_bytes_that_are_no_text])
    def test_a_value_that_is_no_json(self, made: DuctorTask) -> None:
        result = run(made)

        assert (result.status, result.errors[0].exception_class) == (TaskResultStatus.FAILED, UnserialisableArgument)

    def test_a_value_that_becomes_json(self) -> None:
        assert run(jobs.returns_bytes).return_value == "naïve"
        assert run(jobs.echo, (1, (2,))).return_value == [[[1, [2]]], {}]

    def test_a_payload_that_nobody_can_read(self, store: Store) -> None:
        result_id = stored(store, jobs.noop.module_path, b"\xff{")
        work()
        record = store.keys.public_id(result_id[-22:])

        assert record == result_id
        assert run(jobs.answer).return_value == 42

    def test_why_a_job_failed_that_raised_nothing(self, store: Store) -> None:
        cancelled, expired, dead = jobs.noop.enqueue(), jobs.noop.using(expires_after=0.001).enqueue(), jobs.noop
        late = dead.using(run_after=datetime.now(UTC) + timedelta(hours=1)).enqueue()
        store.cancel([cancelled.id[-22:]])
        store.move_to_dlq([late.id[-22:]], "by hand")
        while expired.state != "ended":
            store.promote_due()
            expired.refresh()
        for result, why in ((cancelled, JobCancelled), (expired, JobExpired), (late, JobDead)):
            result.refresh()
            assert (result.status, result.is_finished) == (TaskResultStatus.FAILED, True)
            assert [error.exception_class for error in result.errors] == [why]


class TestAttempts:
    def test_a_result_lists_one_error_for_each_failed_attempt_while_it_waits_for_another(self) -> None:
        result = jobs.never_lucky.using(backoff=backoff.fixed(3600)).enqueue()
        work()
        result.refresh()

        assert (result.status, result.state, result.is_finished) == (TaskResultStatus.READY, "scheduled", False)
        assert [error.exception_class for error in result.errors] == [ValueError]
        assert (result.attempts, result.finished_at) == (1, None)
        assert result.last_attempted_at is not None

    def test_one_that_succeeds_in_the_end_keeps_its_errors(self, signalled: list[Signalled]) -> None:
        result = jobs.third_time_lucky.enqueue()
        while work():
            pass
        result.refresh()

        assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3, 3)
        lines = [error.traceback.splitlines()[-1] for error in result.errors]
        assert lines == ["ValueError: attempt 1", "ValueError: attempt 2"]
        assert len(set(result.worker_ids)) >= 1
        assert [entry.name for entry in signalled] == ["enqueued", "started", "started", "started", "finished"]

    def test_one_that_never_succeeds_has_failed_after_the_last(self, signalled: list[Signalled]) -> None:
        result = jobs.never_lucky.enqueue()
        while work():
            pass
        result.refresh()

        assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 3, 3)
        assert [entry.name for entry in signalled].count("finished") == 1

    def test_a_body_can_look_up_what_became_of_earlier_attempts(self) -> None:
        result = jobs.looks_back.enqueue()
        while work():
            pass
        result.refresh()

        assert result.return_value == ["RUNNING", "builtins.ValueError"]


class TestContext:
    def test_it_comes_first_and_knows_the_job(self) -> None:
        result = run(jobs.takes_context, 5)

        assert result.return_value == {"attempt": 1, "id": result.id, "value": 5}
        [context] = jobs.contexts
        assert isinstance(context, JobContext)
        assert (context.task_result.args, context.task_result.attempts) == ([5], 1)
        assert context.task_result.worker_ids == result.worker_ids

    def test_while_it_runs_the_job_is_running(self, signalled: list[Signalled]) -> None:
        run(jobs.takes_context, 5)

        assert [(entry.name, entry.status) for entry in signalled] == [
            ("enqueued", "READY"),
            ("started", "RUNNING"),
            ("finished", "SUCCESSFUL"),
        ]


class TestSignalsAndLogs:
    def test_each_signal_comes_once_from_the_backends_class(self, signalled: list[Signalled]) -> None:
        result = run(jobs.answer)

        assert [entry[:3] for entry in signalled] == [
            (name, DuctorBackend, result.id) for name in ("enqueued", "started", "finished")
        ]
        assert [entry.handled for entry in signalled] == [None] * 3

    def test_a_failure_is_finished_while_it_is_handled(self, signalled: list[Signalled]) -> None:
        run(jobs.raises_value_error)

        assert signalled[-1].status == "FAILED"
        assert isinstance(signalled[-1].handled, ValueError)

    @pytest.mark.parametrize(
        ("made", "lines"),
        [
            (
                jobs.answer,
                [("DEBUG", "enqueued"), ("INFO", "state=RUNNING"), ("INFO", "state=SUCCESSFUL")],
            ),
            (
                jobs.raises_value_error,
                [("DEBUG", "enqueued"), ("INFO", "state=RUNNING"), ("ERROR", "state=FAILED")],
            ),
        ],
    )
    def test_the_frameworks_log_tells_the_life_of_a_job(
        self, made: DuctorTask, lines: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, logger=TASKS_LOGGER)
        result = run(made)

        entries = [record for record in caplog.records if record.name == TASKS_LOGGER]
        assert [entry.levelname for entry in entries] == [level for level, _ in lines]
        for entry, (_, words) in zip(entries, lines, strict=True):
            assert words in entry.getMessage()
            assert result.id in entry.getMessage()
        last = entries[-1].exc_info
        assert (last is not None and last[0] is ValueError) == (made is jobs.raises_value_error)


class TestOrder:
    def test_larger_priorities_run_sooner(self, signalled: list[Signalled]) -> None:
        low, high, middle = (jobs.noop.using(priority=priority).enqueue() for priority in (-100, 100, 0))
        work()

        started = [entry.id for entry in signalled if entry.name == "started"]
        assert started == [high.id, middle.id, low.id]

    def test_a_moment_to_come_is_waited_for(self, store: Store) -> None:
        later = jobs.answer.using(run_after=datetime.now(UTC) + timedelta(hours=1)).enqueue()
        past = jobs.answer.using(run_after=datetime.now(UTC) - timedelta(hours=1)).enqueue()
        assert work() == 1
        later.refresh()
        past.refresh()

        assert (later.status, past.status) == (TaskResultStatus.READY, TaskResultStatus.SUCCESSFUL)

    def test_a_worker_serves_only_its_queues(self) -> None:
        with override_settings(TASKS={"default": {**OURS, "QUEUES": ["default", "one"]}}):
            result = jobs.answer.using(queue_name="one").enqueue()
            assert work("default") == 0
            assert work("default", "one") == 1
            result.refresh()

        assert result.status == TaskResultStatus.SUCCESSFUL
