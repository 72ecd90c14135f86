"""Validating and enqueueing: what is refused, when and with what, and what the caller gets."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.test.utils import override_settings
from django.utils import timezone
from django.utils.module_loading import import_string

from queueapp import task
from queueapp.backend import DuctorBackend
from queueapp.compat import (
    InvalidTask,
    InvalidTaskBackend,
    Task,
    TaskResultStatus,
    is_task,
    task_backends,
    task_enqueued,
    task_finished,
)
from queueapp.producer.discovery import registry
from queueapp.producer.task import DuctorTask, unchecked
from queueapp.store.reads import Reads
from tests.conformance import jobs
from tests.conformance.conftest import Signalled
from tests.working import work

pytestmark = pytest.mark.compat

ROOT = Task.__module__.rpartition(".")[0]
OURS = {"BACKEND": "queueapp.backend.DuctorBackend"}
IMMEDIATE = {"BACKEND": f"{ROOT}.backends.immediate.ImmediateBackend"}
DUMMY = {"BACKEND": f"{ROOT}.backends.dummy.DummyBackend"}


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """Tasks made in a test are forgotten after it."""
    kept = dict(registry)
    yield
    registry.clear()
    registry.update(kept)


class TestDecorator:
    def test_with_and_without_parentheses_sync_and_async(self) -> None:
        for made in (jobs.noop, jobs.answer, jobs.noop_async):
            assert is_task(made)

    def test_name_and_path(self) -> None:
        assert jobs.noop.name == "noop"
        assert jobs.noop.module_path == "tests.conformance.jobs.noop"
        assert import_string(jobs.noop.module_path) is jobs.noop

    def test_a_task_can_be_called_from_either_world(self) -> None:
        assert jobs.answer.call() == jobs.answer_async.call() == 42
        assert asyncio.run(jobs.answer.acall()) == asyncio.run(jobs.answer_async.acall()) == 42

    def test_only_functions_of_a_module(self) -> None:
        for wrong in (any, self.test_only_functions_of_a_module):
            with pytest.raises(InvalidTask, match="defined at a module level"):
                task(wrong)

    def test_a_context_needs_a_first_argument_of_that_name(self) -> None:
        with pytest.raises(InvalidTask, match="takes context but does not have a first argument of 'context'"):
            task(takes_context=True)(jobs.answer.func)

    def test_a_moment_belongs_to_using(self) -> None:
        given: dict[str, Any] = {"run_after": timezone.now()}
        with pytest.raises(ValueError, match=r"run_after.*using"):
            task(**given)(jobs.answer.func)

    @pytest.mark.parametrize("root", ["django.tasks", "django_tasks"])
    def test_the_frameworks_own_decorator(self, root: str) -> None:
        """A library's task need not know of Ductor. The package's is tried where it is what Ductor builds on."""
        if root != ROOT:
            pytest.skip(f"{root} is not the framework here")
        decorate = import_module(root).task
        bare, given = decorate(jobs.echo.func), decorate(priority=7, queue_name="default")(jobs.echo.func)

        assert isinstance(bare, DuctorTask)
        assert (given.priority, given.tenant) == (7, None)
        assert bare.enqueue(1).args == [1]


class TestUsing:
    def test_it_makes_a_new_task_and_leaves_the_old_one(self) -> None:
        moment = timezone.now()
        changed = jobs.noop.using(priority=1, run_after=moment)

        assert (changed.priority, changed.run_after) == (1, moment)
        assert (jobs.noop.priority, jobs.noop.run_after, jobs.noop.queue_name) == (0, None, "default")
        assert jobs.noop.using() == jobs.noop
        assert jobs.noop.using() is not jobs.noop

    def test_it_chains(self) -> None:
        moment = timezone.now()
        later = jobs.noop.using(run_after=moment)
        both = later.using(priority=10)

        assert (both.run_after, both.priority, later.priority) == (moment, 10, 0)

    @pytest.mark.parametrize("wrong", [-101, 101, 3.1, "1", True, None.__class__])
    def test_priorities_out_of_range(self, wrong: Any) -> None:
        with pytest.raises(InvalidTask, match=r"priority must be a whole number between -100 and 100\."):
            jobs.noop.using(priority=wrong)

    @pytest.mark.parametrize("right", [-100, 0, 100])
    def test_priorities_within(self, right: int) -> None:
        assert jobs.noop.using(priority=right).priority == right

    @override_settings(USE_TZ=True)
    def test_a_naive_moment(self) -> None:
        with pytest.raises(InvalidTask, match="run_after must be an aware datetime"):
            jobs.noop.using(run_after=datetime.now())

    def test_an_unknown_queue(self) -> None:
        with override_settings(TASKS={"default": {**OURS, "QUEUES": ["default", "one"]}, "any": IMMEDIATE}):
            assert jobs.noop.using(queue_name="one").queue_name == "one"
            with pytest.raises(InvalidTask, match="'two' is not a known pool; known: default, one"):
                jobs.noop.using(queue_name="two")

    def test_an_unknown_backend(self) -> None:
        with pytest.raises(InvalidTaskBackend, match="unknown"):
            jobs.noop.using(backend="unknown")

    def test_a_backend_that_cannot_be_imported(self) -> None:
        with (
            override_settings(TASKS={"default": OURS, "missing": {"BACKEND": "does.not.exist"}}),
            pytest.raises(InvalidTaskBackend, match=r"does\.not\.exist"),
        ):
            jobs.noop.using(backend="missing")

    def test_another_alias(self) -> None:
        with override_settings(TASKS={"default": OURS, "other": OURS}):
            moved = jobs.noop.using(backend="other")

            assert moved.get_backend() is task_backends["other"]
            result = moved.enqueue()
            assert (result.backend, moved.get_result(result.id).backend) == ("other", "other")


class TestEnqueue:
    @pytest.mark.parametrize("asynchronous", [False, True])
    @pytest.mark.parametrize("made", [jobs.noop, jobs.noop_async])
    def test_what_the_caller_gets(
        self, made: DuctorTask, asynchronous: bool, signalled: list[Signalled], reads: Reads
    ) -> None:
        result = asyncio.run(made.aenqueue(1, two=3)) if asynchronous else made.enqueue(1, two=3)

        assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)
        assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
        assert (result.task, result.args, result.kwargs) == (made, [1], {"two": 3})
        assert (result.errors, result.worker_ids, result.backend) == ([], [], "default")
        assert 0 < len(result.id) < 64
        assert result.enqueued_at is not None
        assert timezone.is_aware(result.enqueued_at)
        with pytest.raises(ValueError, match="not finished"):
            _ = result.return_value
        assert signalled == [("enqueued", DuctorBackend, result.id, "READY", None)]
        assert reads.overview().waiting == 1

    def test_arguments_are_those_of_json(self) -> None:
        result = jobs.noop.enqueue((1, 2), key=b"text", inner={"a": (3,)})

        assert (result.args, result.kwargs) == ([[1, 2]], {"key": "text", "inner": {"a": [3]}})

    def test_arguments_are_a_copy(self) -> None:
        given = [1]
        result = jobs.noop.enqueue(given)
        given.append(2)

        assert result.args == [[1]]

    @pytest.mark.parametrize("asynchronous", [False, True])
    @pytest.mark.parametrize("wrong", [datetime.now(UTC), object(), {1}, {"a": object()}])
    def test_what_is_no_json_is_refused_at_once(
        self, wrong: Any, asynchronous: bool, signalled: list[Signalled], reads: Reads
    ) -> None:
        with pytest.raises(TypeError):
            asyncio.run(jobs.noop.aenqueue(wrong)) if asynchronous else jobs.noop.enqueue(wrong)

        assert signalled == []
        assert reads.overview().waiting == 0

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_a_task_is_validated_again(self, asynchronous: bool, signalled: list[Signalled]) -> None:
        with override_settings(TASKS={"default": {**OURS, "QUEUES": ["gone"]}}):
            made = jobs.noop.using(queue_name="gone")
        with (
            override_settings(TASKS={"default": {**OURS, "QUEUES": ["default"]}}),
            pytest.raises(InvalidTask, match="'gone' is not a known pool"),
        ):
            asyncio.run(made.aenqueue()) if asynchronous else made.enqueue()
        assert signalled == []

    def test_no_backend_at_all(self) -> None:
        with override_settings(TASKS={}), pytest.raises(InvalidTaskBackend):
            jobs.noop.enqueue()

    def test_a_receiver_that_raises_costs_no_job(self, signalled: list[Signalled], reads: Reads) -> None:
        def broken(**_: Any) -> None:
            raise RuntimeError("a broken monitor")

        task_enqueued.connect(broken)
        try:
            jobs.noop.enqueue()
        finally:
            task_enqueued.disconnect(broken)
        assert reads.overview().waiting == 1

    def test_the_default_backend_has_no_faults(self) -> None:
        backend = task_backends["default"]

        assert isinstance(backend, DuctorBackend)
        assert (backend.alias, backend.options, list(backend.check())) == ("default", {}, [])


class TestWithoutTimeZones:
    """USE_TZ = False: moments may be given naive, in local time; those of a result are aware all the same."""

    @pytest.fixture(autouse=True)
    def _no_zones(self) -> Iterator[None]:
        with override_settings(USE_TZ=False):
            yield

    def test_a_naive_moment_is_local_time(self, reads: Reads) -> None:
        moment = datetime.now() + timedelta(hours=1)
        result = jobs.noop.using(run_after=moment).enqueue()

        record = reads.job(result.id[-22:])
        assert record is not None
        assert record.due_ms == round(moment.timestamp() * 1000)
        assert (result.task.run_after, result.state) == (moment, "scheduled")

    def test_an_aware_moment_is_what_it_says(self, reads: Reads) -> None:
        moment = datetime.now(UTC) + timedelta(hours=1)
        result = jobs.noop.using(run_after=moment).enqueue()

        record = reads.job(result.id[-22:])
        assert record is not None
        assert record.due_ms == round(moment.timestamp() * 1000)

    def test_moments_of_a_result_are_aware(self) -> None:
        result = jobs.answer.enqueue()
        work()
        read = jobs.answer.get_result(result.id)

        moments = (result.enqueued_at, read.enqueued_at, read.started_at, read.last_attempted_at, read.finished_at)
        assert all(moment is not None and timezone.is_aware(moment) for moment in moments)

    def test_moments_of_a_signal_are_aware(self) -> None:
        moments: list[datetime | None] = []

        def receive(task_result: Any, **_: Any) -> None:
            moments.extend((task_result.enqueued_at, task_result.started_at, task_result.finished_at))

        task_finished.connect(receive)
        try:
            jobs.answer.enqueue()
            work()
        finally:
            task_finished.disconnect(receive)

        assert len(moments) == 3
        assert all(moment is not None and timezone.is_aware(moment) for moment in moments)


class TestOtherBackends:
    """A host's tests may run with another backend: our tasks do there what any task does, options of ours aside."""

    def test_immediate(self) -> None:
        with override_settings(TASKS={"default": IMMEDIATE}):
            made = jobs.echo.using(tenant="acme", lane="x", metadata={"a": 1}, max_attempts=5, database="default")
            result: Any = made.enqueue(1, two=2)

            assert (result.status, result.return_value) == ("SUCCESSFUL", [[1], {"two": 2}])
            assert task(api=True, sensitive=True, typed=True)(jobs.answer.func).enqueue().return_value == 42

    def test_immediate_with_a_context(self) -> None:
        with override_settings(TASKS={"default": IMMEDIATE}):
            result = jobs.takes_context.enqueue(5)

        assert result.return_value == {"attempt": 1, "id": result.id, "value": 5}

    def test_dummy(self) -> None:
        with override_settings(TASKS={"default": DUMMY}):
            backend: Any = task_backends["default"]
            result = jobs.noop.using(tenant="acme").enqueue(1)

            assert [found.id for found in backend.results] == [result.id]
            assert jobs.noop.get_result(result.id).task == jobs.noop.using(tenant="acme")


@pytest.mark.skipif(not hasattr(Task, "_reconstruct"), reason="tasks can be pickled from Django 6.1 on")
class TestPickling:
    def test_a_task(self) -> None:
        made = jobs.noop.using(tenant="acme", metadata={"a": [1]}, expires_after=5, backoff=3)

        assert pickle.loads(pickle.dumps(made)) == made

    def test_a_result(self) -> None:
        result = jobs.noop.using(metadata={"a": 1}).enqueue(1)

        assert pickle.loads(pickle.dumps(result)) == result

    @pytest.mark.parametrize("path", ["does.not.exist", "builtins.any"])
    def test_what_is_no_task(self, path: str) -> None:
        reconstruct: Any = DuctorTask._reconstruct  # type: ignore[attr-defined]  # the narrower type is known here alone
        with pytest.raises(ValueError, match="to point to a Task instance"):
            reconstruct({"func": path})


def test_tasks_of_the_past_may_be_sent_though_they_would_be_refused_today() -> None:
    """`unchecked` is how old results are read; it must not let anything be enqueued."""
    with pytest.raises(InvalidTask):
        unchecked(jobs.noop, queue_name="NOT A POOL").enqueue()
