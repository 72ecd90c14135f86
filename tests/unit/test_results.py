"""Results as their callers see them: which state is which status, what came back, and why a job failed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test.utils import override_settings

from queueapp.compat import Task, TaskError, TaskResultDoesNotExist, TaskResultStatus
from queueapp.producer.results import result_from_record, running_result
from queueapp.states import Outcome, State
from queueapp.store.ids import new_id
from queueapp.store.records import LeasedJob
from queueapp.store.store import Store
from queueapp.store.views import ErrorRecord, JobRecord
from tests.producing import add, attempt, chosen

pytestmark = pytest.mark.compat

OURS = {"BACKEND": "queueapp.backend.DuctorBackend"}


class TestResults:
    def test_get_result(self, store: Store) -> None:
        result = add.using(tenant="a", priority=3).enqueue(1, b=2)
        read = add.get_result(result.id)

        assert (read.id, read.args, read.kwargs, read.backend) == (result.id, [1], {"b": 2}, "default")
        assert (read.status, read.state, read.attempts) == (TaskResultStatus.READY, "pending", 0)
        assert (read.task.func, read.task.priority) == (add.func, 3)
        assert read.enqueued_at is not None
        assert abs((read.enqueued_at - datetime.now(UTC)).total_seconds()) < 60

    @pytest.mark.parametrize("wrong", ["", "x", "a.b.c", "0" * 64, "abcdef.0." + "x" * 22, 5, None])
    def test_what_is_no_job_does_not_exist(self, wrong: Any, store: Store) -> None:
        with pytest.raises(TaskResultDoesNotExist, match="No job has the id"):
            add.get_result(wrong)

    def test_of_another_task_is_a_mismatch(self, store: Store) -> None:
        from importlib import import_module

        exceptions = import_module(Task.__module__.rpartition(".")[0] + ".exceptions")
        with pytest.raises(exceptions.TaskResultMismatch):
            chosen.get_result(add.enqueue(1).id)


def record(**given: Any) -> JobRecord:
    values: dict[str, Any] = {
        "id": new_id(),
        "state": State.PENDING,
        "task": "tests.producing.add",
        "tenant": "a",
        "lane": "main",
        "submitted_ms": 1_700_000_000_000,
    }
    return JobRecord(**{**values, **given})


def error(kind: str = "error", worker: str = "w1") -> ErrorRecord:
    detail = {"class": "builtins.ValueError", "message": "no", "traceback": "Traceback ..."} if kind == "error" else {}
    return ErrorRecord(kind=kind, attempt=1, worker=worker, at_ms=1, detail=detail)


class TestStates:
    """Which state is which status, and which class says why a job failed."""

    @pytest.mark.parametrize(
        ("given", "status", "why"),
        [
            ({"state": State.PENDING}, "READY", []),
            ({"state": State.SCHEDULED, "errors": [error()]}, "READY", ["ValueError"]),
            ({"state": State.ACTIVE, "worker": "w"}, "RUNNING", []),
            ({"state": State.ENDED, "outcome": Outcome.COMPLETED, "worker": "w"}, "SUCCESSFUL", []),
            ({"state": State.ENDED, "outcome": Outcome.CANCELLED}, "FAILED", ["JobCancelled"]),
            ({"state": State.ENDED, "outcome": Outcome.EXPIRED}, "FAILED", ["JobExpired"]),
            (
                {"state": State.ENDED, "outcome": Outcome.DISCARDED, "errors": [error()]},
                "FAILED",
                ["ValueError", "JobDiscarded"],
            ),
            ({"state": State.DEAD, "reason": "error", "errors": [error()]}, "FAILED", ["ValueError"]),
            ({"state": State.DEAD, "reason": "worker_lost", "errors": [error("lost")]}, "FAILED", ["JobDead"]),
            ({"state": State.DEAD, "reason": "unknown_task"}, "FAILED", ["JobDead"]),
        ],
    )
    def test_status_and_reason(self, given: dict[str, Any], status: str, why: list[str]) -> None:
        result = result_from_record(record(**given), "default")

        assert result.status == status
        assert [found.exception_class.__name__ for found in result.errors] == why
        assert result.state == given["state"].value
        assert result.is_finished == (status in {"FAILED", "SUCCESSFUL"})

    def test_every_state_is_mapped(self) -> None:
        for state in State:
            assert result_from_record(record(state=state), "default").status in TaskResultStatus

    def test_a_value_comes_back(self) -> None:
        ended = record(state=State.ENDED, outcome=Outcome.COMPLETED, result=b'{"a":[1]}', worker="w", ended_ms=1)

        assert result_from_record(ended, "default").return_value == {"a": [1]}
        with pytest.raises(ValueError, match="not finished"):
            _ = result_from_record(record(), "default").return_value

    def test_attempts_are_those_that_began(self) -> None:
        failed_twice = record(state=State.ACTIVE, worker="w3", errors=[error(worker="w1"), error("lost", worker="w2")])
        result = result_from_record(failed_twice, "default")

        assert (result.worker_ids, result.attempts) == (["w1", "w2", "w3"], 3)

    def test_a_job_of_an_unknown_task_can_be_read(self) -> None:
        result = result_from_record(record(task="gone.tasks.vanished"), "default")

        assert result.task.module_path == "gone.tasks.vanished"
        with pytest.raises(LookupError, match=r"No task is called 'gone\.tasks\.vanished'"):
            result.task.call()

    def test_a_pool_that_left_the_settings_does_not_make_results_unreadable(self) -> None:
        with override_settings(TASKS={"default": {**OURS, "QUEUES": ["other"]}}):
            assert result_from_record(record(), "default").task.queue_name == "default"

    def test_an_error_is_a_task_error(self) -> None:
        [found] = result_from_record(record(state=State.DEAD, reason="error", errors=[error()]), "default").errors

        assert found == TaskError(exception_class_path="builtins.ValueError", traceback="Traceback ...")

    def test_the_result_of_a_body_that_is_about_to_run(self) -> None:
        leased = LeasedJob(
            id=new_id(),
            attempts=5,
            errors=1,
            crashes=1,
            task="tests.producing.attempt",
            tenant="a",
            lane="main",
            priority=4,
            cost=1,
            submitted_ms=1_700_000_000_000,
            ready_ms=1_700_000_000_000,
            leased_ms=1_700_000_001_000,
            deadline_ms=1_700_000_031_000,
            max_attempts=3,
            payload=b"{}",
        )
        result = running_result(attempt, leased, "default", "worker-1", [1], {"b": 2})

        assert (result.status, result.state) == (TaskResultStatus.RUNNING, "active")
        assert (result.attempts, result.worker_ids[-1]) == (3, "worker-1")
        assert (result.args, result.kwargs, result.task.priority) == ([1], {"b": 2}, 4)
