"""From a task with arguments to a job that only the store can still refuse: checked, encoded, its tenant found.

`client` and `bulk` call `prepare` before anything is written anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from queueapp import telemetry
from queueapp.codec import decode_arguments, digest, encode_arguments, fingerprint
from queueapp.compat import Task
from queueapp.conf import default_alias, settings
from queueapp.errors import PayloadTooLarge
from queueapp.inspection.masking import is_secret
from queueapp.moments import now_ms
from queueapp.producer import concurrency, once
from queueapp.producer.backoff import to_options
from queueapp.producer.discovery import registry
from queueapp.producer.kept_trees import KeptTree
from queueapp.producer.results import DEFERRED, DuctorResult, sent_result
from queueapp.producer.task import DuctorTask, adopt
from queueapp.producer.tenancy import resolve_tenant
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.ids import new_id
from queueapp.store.records import Enqueued, NewJob, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """What is said of a job by a package that hands it over for itself (`handover`); the fields are those of `NewJob`.

    It is admitted: nobody is there to be told that there is no room.
    """

    id: str
    tier: Tier
    unheard: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job that nothing but the store can refuse any more."""

    task: DuctorTask
    job: NewJob
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    called_at: float = field(default_factory=time.monotonic)
    """When it was called, on this process's monotonic clock."""
    handed_over: bool = False
    """By a package, for itself (`handover`): nobody's call."""
    tree: KeptTree | None = None
    """Of the root of a tree that is kept: all of it."""

    def late(self) -> NewJob:
        """The job as it is to be sent some time after the call: its delay counts from the call."""
        return self.counted_from_call(self.job)

    def counted_from_call(self, job: NewJob) -> NewJob:
        """The same of another job of this call."""
        if not job.delay_ms:
            return job
        over_ms = round((time.monotonic() - self.called_at) * 1000)
        return replace(job, delay_ms=max(0, job.delay_ms - over_ms))

    @property
    def pool(self) -> str:
        return self.task.queue_name

    @property
    def sender(self) -> type:
        """The backend's class: the sender of signals, as django.tasks has it."""
        return type(self.task.get_backend())

    def result(self, accepted: Enqueued) -> DuctorResult:
        """The handle of the job that the store answered with."""
        public_id = shards.keys(self.pool).public_id(accepted.id)
        return sent_result(
            self.task, public_id, self.args, self.kwargs, state=self.first_state(accepted), outcome=accepted.outcome
        )

    def deferred(self) -> DuctorResult:
        """The handle of a job that its transaction will send."""
        public_id = shards.keys(self.pool).public_id(self.job.id)
        return sent_result(self.task, public_id, self.args, self.kwargs, state=DEFERRED, outcome=DEFERRED)

    def first_state(self, accepted: Enqueued) -> str:
        """Where the job stands once accepted, as far as the producer's clock can tell."""
        if accepted.outcome == "parked":
            return State.BACKLOG.value
        after = self.task.run_after
        later = (
            self.job.debounce is not None
            or self.job.delay_ms > 0
            or (after is not None and after.timestamp() > datetime.now().timestamp())
        )
        return State.SCHEDULED.value if later else State.PENDING.value


def prepare(
    task: Task,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    tenant: str = "",
    options: Mapping[str, Any] | None = None,
    handed_over: HandedOver | None = None,
) -> Prepared:
    """Check and encode a job, without the store and without our tables; a host's tenant resolvers may be asked.

    `tenant`: whose it is, whatever the task says. `options`: further ones for the worker. `handed_over`: what a package
    says of its own job.
    """
    ours = adopt(task)
    payload = encoded(ours, args, kwargs, _options(ours) | dict(options or {}))
    name = ours.module_path
    key = ours.idempotency_key
    tenant = tenant or resolve_tenant(ours.tenant, name)
    due_ms, delay_ms = _due_ms(ours.run_after), round((ours.delay or 0) * 1000)
    # As the worker will get them: a copy, in which a tuple is a list unless the task is typed.
    args, kwargs, _ = decode_arguments(payload)
    filled = derived(ours, args, kwargs, tenant)
    job = NewJob(
        id=handed_over.id if handed_over is not None else new_id(),
        task=name,
        tenant=tenant,
        payload=payload,
        fingerprint=fingerprint(name, payload, canonical=key is not None),
        lane=ours.lane,
        priority=int(ours.priority),
        cost=ours.cost or 0,
        due_ms=due_ms,
        delay_ms=delay_ms,
        expires_after_ms=max(1, round(ours.expires_after * 1000)) if ours.expires_after else 0,
        max_attempts=ours.max_attempts or settings.max_attempts,
        max_crashes=ours.max_crashes or settings.max_crashes,
        idempotency=digest(key) if key is not None else "",
        idempotency_ttl_ms=settings.idempotency_ttl_ms,
        deadline_ms=_deadline_ms(ours.deadline, max(due_ms, now_ms() + delay_ms if delay_ms else 0)),
        keys=filled.keys,
        parks=ours.on_throttle == "park" and handed_over is None,
        debounce=filled.debounce,
        singleton=filled.singleton,
        tier=handed_over.tier if handed_over is not None else "start",
        admitted=handed_over is not None,
        unheard=handed_over is not None and handed_over.unheard,
    )
    return Prepared(task=ours, job=job, args=args, kwargs=kwargs, handed_over=handed_over is not None)


def encoded(
    task: DuctorTask, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any] | None
) -> bytes:
    """The payload of a job of this task. Raises UnserialisableArgument and PayloadTooLarge."""
    payload = encode_arguments(args, kwargs, options, typed=task.typed)
    if len(payload) > settings.max_payload_bytes:
        raise PayloadTooLarge(
            f"The arguments of {task.module_path} have {len(payload)} bytes as JSON; MAX_PAYLOAD_BYTES allows "
            f"{settings.max_payload_bytes}. Store large data elsewhere and pass where it is."
        )
    return payload


def derived(task: DuctorTask, args: Sequence[Any], kwargs: Mapping[str, Any], tenant: str) -> once.Filled:
    """What follows from the arguments of a job: its debounce, its singleton and all of its concurrency keys.

    Raises InvalidOption for arguments that give none.
    """
    filled = once.fill_in(
        task.func,
        task.module_path,
        args,
        kwargs,
        debounce=task.debounce,
        singleton=task.singleton,
        tenant=tenant,
        takes_context=task.takes_context,
        is_hidden=partial(_is_hidden, task),
    )
    keys = concurrency.fill_in(
        task.func,
        task.concurrency,
        args,
        kwargs,
        tenant=tenant,
        takes_context=task.takes_context,
        is_hidden=partial(_is_hidden, task),
    )
    if not keys:
        return filled
    return replace(filled, keys=tuple(sorted((*keys, *filled.keys), key=lambda key: key.digest)))


def _options(task: DuctorTask) -> dict[str, Any]:
    """What a worker must know of this job beyond what its row and its task say."""
    found: dict[str, Any] = {}
    declared = registry.get(task.module_path)
    # What @task says the worker reads from its own code, so that a deploy changes it for waiting jobs, too.
    if task.backoff is not None and (declared is None or declared.backoff != task.backoff):
        portable = to_options(task.backoff)
        if portable is not None:
            found["backoff"] = portable
    if task.backend != default_alias():
        found["backend"] = task.backend
    if task.metadata:
        found["metadata"] = task.metadata
    if task.sensitive:
        found["sensitive"] = list(task.sensitive) if isinstance(task.sensitive, tuple) else True
    if declared is not None and declared.typed != task.typed:
        found["typed"] = task.typed
    for name in ("timeout", "soft_timeout"):
        value = getattr(task, name)
        if value is not None and (declared is None or getattr(declared, name) != value):
            found[name] = value
    if telemetry.active() and (carrier := telemetry.carrier()):
        found[telemetry.OPTION] = carrier
    return found


def _is_hidden(task: DuctorTask, parameter: str) -> bool:
    """Whether nobody is shown the value of this parameter, nor a part of it."""
    if isinstance(task.sensitive, bool):
        return task.sensitive or is_secret(parameter)
    return is_secret(parameter) or any(path.partition(".")[0] == parameter for path in task.sensitive)


def _deadline_ms(deadline: datetime | float | None, due_ms: int) -> int:
    """The moment of a deadline. A duration counts from now, or from when the job may first run when that is later."""
    if deadline is None:
        return 0
    if isinstance(deadline, datetime):
        return max(1, round(deadline.timestamp() * 1000))
    return max(now_ms(), due_ms) + max(1, round(deadline * 1000))


def _due_ms(run_after: datetime | None) -> int:
    # A naive moment gets here only with USE_TZ off, where it means the local time of the process, as Django sets it.
    return 0 if run_after is None else round(run_after.timestamp() * 1000)
