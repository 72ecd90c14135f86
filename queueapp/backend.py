"""`queueapp.backend.DuctorBackend`: what a project names in Django's `TASKS` setting. One class for Django 5.2 to 6.1.

There is one instance per thread: it holds nothing and touches neither the store nor the models when it is made. What it
does is the producer's; this class speaks django.tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error
from django.utils import timezone

from queueapp import telemetry
from queueapp.compat import BaseTaskBackend, InvalidTask, Task, TaskResultDoesNotExist
from queueapp.conf import DEFAULT_POOL, known_pools
from queueapp.names import POOL_FORM
from queueapp.policies.protocol import PRIORITY_MAX, PRIORITY_MIN
from queueapp.producer import client
from queueapp.producer.options import InvalidTaskOption, UnknownQueue
from queueapp.producer.results import DuctorResult, result_from_record
from queueapp.producer.task import DuctorTask
from queueapp.store.following import aread_job, read_job

POOL_NAME_WORDS = "The name of a pool has 1 to 64 of a-z 0-9 _ - and begins with a letter or a digit."


class DuctorBackend(BaseTaskBackend):
    """Hands tasks to Ductor. `QUEUES` names pools of this alias beside `default`; without it any known one will do."""

    task_class = DuctorTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    supports_metadata = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        # An empty set means any to django.tasks; `enqueue` asks whether the pool is known.
        named = set(params.get("QUEUES") or ())
        self.queues = named | {DEFAULT_POOL} if named else named

    def validate_task(self, task: Task) -> None:
        """Raise InvalidTask (ours are also InvalidOption), which names the field, the value and the remedy."""
        if "<lambda>" in getattr(task.func, "__qualname__", ""):
            raise InvalidTask(
                "A task must be a function with a name: a worker finds it by its path; a lambda has none."
            )
        _require_priority(task.priority)
        _require_moment(task.run_after)
        _require_pool_name(task.queue_name)
        if self.queues and task.queue_name not in self.queues:
            raise UnknownQueue(
                task.queue_name, self.queues, f'Add it to TASKS["{self.alias}"]["QUEUES"], or correct it.'
            )
        super().validate_task(task)

    def enqueue(  # type: ignore[override]  # a result of any parameters
        self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> DuctorResult:
        """Enqueue one job; see `producer.client.submit` for what it raises."""
        self.validate_task(task)
        if not telemetry.active():
            return client.submit(task, args, kwargs)
        with telemetry.sent(_sending(task)) as told:
            result = client.submit(task, args, kwargs)
            told(result.id)
        return result

    async def aenqueue(  # type: ignore[override]  # as above
        self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> DuctorResult:
        """`enqueue` on the store's asynchronous client; no thread is involved."""
        self.validate_task(task)
        if not telemetry.active():
            return await client.asubmit(task, args, kwargs)
        with telemetry.sent(_sending(task)) as told:
            result = await client.asubmit(task, args, kwargs)
            told(result.id)
        return result

    def get_result(self, result_id: str) -> DuctorResult:
        """The job of this id as it is now. Raises TaskResultDoesNotExist also for what is no job id."""
        found = read_job(str(result_id))
        if found is None:
            raise _gone(result_id)
        pool, record = found
        return result_from_record(record, pool, self.alias, asked=str(result_id))

    async def aget_result(self, result_id: str) -> DuctorResult:
        """See `get_result`."""
        found = await aread_job(str(result_id))
        if found is None:
            raise _gone(result_id)
        pool, record = found
        return result_from_record(record, pool, self.alias, asked=str(result_id))

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Faults of this alias in TASKS; everything else is checked by `queueapp.checks`."""
        messages: list[CheckMessage] = []
        for queue in sorted(self.queues, key=str):
            try:
                _require_pool_name(queue)
            except UnknownQueue:
                messages.append(
                    Error(
                        f'TASKS["{self.alias}"]["QUEUES"] has {queue!r}, which cannot be the name of a pool.',
                        hint=POOL_NAME_WORDS,
                        id="queueapp.E003",
                    )
                )
        if self.options:
            given = ", ".join(sorted(map(str, self.options)))
            messages.append(
                Error(
                    f'TASKS["{self.alias}"]["OPTIONS"] has {given}; Ductor takes none there.',
                    hint="Move them to the setting DUCTOR.",
                    id="queueapp.E004",
                )
            )
        return messages


def _sending(task: Task) -> telemetry.Sending:
    return telemetry.Sending(task=task.module_path, pool=task.queue_name)


def _require_priority(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not PRIORITY_MIN <= value <= PRIORITY_MAX:
        raise InvalidTaskOption(
            f"priority is {value!r}: priority must be a whole number between {PRIORITY_MIN} and {PRIORITY_MAX}."
        )


def _require_moment(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, datetime) or (django_settings.USE_TZ and not timezone.is_aware(value)):
        raise InvalidTaskOption(
            f"run_after is {value!r}: run_after must be an aware datetime, such as timezone.now() + timedelta(hours=1)."
        )


def _require_pool_name(value: object) -> None:
    if not isinstance(value, str) or not POOL_FORM.fullmatch(value):
        raise UnknownQueue(value, known_pools(), POOL_NAME_WORDS)


def _gone(result_id: object) -> TaskResultDoesNotExist:
    return TaskResultDoesNotExist(
        f"No job has the id {str(result_id)[:80]!r}: it never existed, or RESULT_TTL or RESULT_MAX removed it."
    )
