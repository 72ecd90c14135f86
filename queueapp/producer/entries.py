"""How a job stands in a row of the outbox, and how it comes out again: checked, for the store trusts what it is sent.

`outbox` and schedules write rows, `relaying` sends what they hold. No question to a database is asked here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields, replace
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

from django.utils import timezone

from queueapp.moments import now_ms
from queueapp.names import LANE_FORM, POOL_FORM
from queueapp.patterns import TEXT_MAX_BYTES
from queueapp.policies.protocol import PRIORITY_MAX, PRIORITY_MIN
from queueapp.producer.concurrency import LIMIT_MAX
from queueapp.producer.kept_trees import TREE, KeptTree
from queueapp.producer.once import PERIOD_MAX_S
from queueapp.store import shards
from queueapp.store.records import KEYS_MAX, DebounceUse, KeyUse, NewJob, SingletonMode, SingletonUse

if TYPE_CHECKING:
    from queueapp.models import OutboxEntry
    from queueapp.producer.preparation import Prepared

VERSION = 2
"""Of the form in which a row holds its job. With 2 that is the root of a tree: a release that knows no trees would send
it alone."""
KINDS: dict[str, tuple[type, ...]] = {
    "payload": (bytes,),
    "cost": (int, float),
    "debounce": (NoneType, DebounceUse),
    "singleton": (NoneType, SingletonUse),
}
"""Types of a job's fields that are not those of their defaults, nor text."""
KEY_DIGEST_FORM = re.compile(r"[A-Za-z0-9_-]{22}")
DIGEST_FORM = re.compile(r"[A-Za-z0-9_-]{0,64}")


def entry_of(
    prepared: Prepared, *, error: str = "", due: datetime | None = None, claim: str = "", tries: int = 0
) -> OutboxEntry:
    """The row that keeps a job. `due` and `claim`: whose it is to send, and until when nobody else does."""
    # Imported late: tasks modules, which import the producer, are loaded before the apps' models may be.
    from queueapp.models import OutboxEntry

    job, at_ms = prepared.late(), now_ms()
    tree = {} if prepared.tree is None else prepared.tree.packed()
    return OutboxEntry(
        job_id=public_id(prepared),
        pool=prepared.pool,
        tenant=job.tenant,
        task=job.task[:512],
        job={
            "version": VERSION if tree else 1,
            "backend": prepared.task.backend,
            "kept_ms": at_ms,
            "job": held(job),
            **tree,
        },
        payload=job.payload,
        error=error,
        due=due or timezone.now(),
        claim=claim,
        tries=tries,
    )


def held(job: NewJob) -> dict[str, Any]:
    """All of a job but its arguments, as JSON has it."""
    found = {field.name: getattr(job, field.name) for field in fields(job) if field.name != "payload"}
    once = {name: use and asdict(use) for name, use in (("debounce", job.debounce), ("singleton", job.singleton))}
    return {**found, **once, "keys": [asdict(key) for key in job.keys]}


def job_of(entry: OutboxEntry) -> NewJob:
    """The job of a row as it is to be sent now.

    `due_ms` and `deadline_ms` are moments and stay. `expires_after_ms` counts from the commit and `delay_ms` from the
    call, so what has passed since is taken off; a job that has expired meanwhile is sent all the same, so that its
    result says so. Clocks of two machines are compared here, so that a delay is never longer than it was, counted from
    now. The time for which an idempotency key stands is not cut: it begins when the store knows the key, and two rows
    with one key must still meet there.
    """
    if entry.job["version"] > VERSION:
        raise ValueError(f"version {entry.job['version']} of a row")
    given = dict(entry.job["job"])
    keys = tuple(KeyUse(**key) for key in given.pop("keys", ()))
    window, single = given.pop("debounce", None), given.pop("singleton", None)
    job = NewJob(
        **given,
        keys=keys,
        debounce=window and DebounceUse(**window),
        singleton=single and SingletonUse(**single),
        payload=bytes(entry.payload),
    )
    _check(job)
    if not POOL_FORM.fullmatch(entry.pool):
        raise ValueError("its pool has no name that Ductor gives")
    if entry.job_id != shards.keys(entry.pool).public_id(job.id):
        raise ValueError("its id is not of its pool")
    return _aged(job, entry.job["kept_ms"])


def tree_of(entry: OutboxEntry) -> KeptTree | None:
    """The tree of a row as it is to be sent now, each job as `job_of` has it; None: it holds one job alone."""
    root = job_of(entry)
    if TREE not in entry.job:
        return None
    tree = KeptTree.of(entry.job)
    tree.check()
    for _, node in tree.all_nodes(""):
        _check(node.job)
    if tree.nodes[0].job.id != root.id:
        raise ValueError("its tree has another root")
    return tree.with_jobs(lambda job: _aged(job, entry.job["kept_ms"]))


def _aged(job: NewJob, kept_ms: int) -> NewJob:
    """The job with what has passed since it was kept taken off."""
    passed_ms = max(0, now_ms() - kept_ms)
    if job.delay_ms:
        job = replace(job, delay_ms=max(0, job.delay_ms - passed_ms))
    if not job.expires_after_ms:
        return job
    left_ms = job.expires_after_ms - passed_ms
    if left_ms > 0:
        return replace(job, expires_after_ms=left_ms)
    # Due long after it expires, so that no worker can have it in between.
    return replace(job, expires_after_ms=1, due_ms=now_ms() + 86_400_000, delay_ms=0)


def _check(job: NewJob) -> None:
    """Raises ValueError for a job that no enqueue makes: the store trusts what it is sent."""
    for field in fields(job):
        value = getattr(job, field.name)
        kind = str if field.default is MISSING else type(field.default)
        if type(value) not in KINDS.get(field.name, (kind,)):
            raise ValueError(f"{field.name} is of the type {type(value).__name__}")
        least, most = (PRIORITY_MIN, PRIORITY_MAX) if field.name == "priority" else (0, 2**53)
        if isinstance(value, (int, float)) and not least <= value <= most:
            raise ValueError(f"{field.name} is out of range")
    job.task.encode()
    if not (LANE_FORM.fullmatch(job.tenant) and LANE_FORM.fullmatch(job.lane)):
        raise ValueError("its tenant or lane has no name that Ductor gives")
    if job.tier not in ("start", "continue") or not (DIGEST_FORM.fullmatch(job.fingerprint + job.idempotency)):
        raise ValueError("its tier or one of its digests is none")
    _check_keys(job.keys)
    _check_once(job)


def _check_keys(keys: Sequence[KeyUse]) -> None:
    digests = [key.digest for key in keys]
    if len(keys) > KEYS_MAX or digests != sorted(set(digests)):
        raise ValueError("its concurrency keys are no set of keys")
    for key in keys:
        if not (KEY_DIGEST_FORM.fullmatch(key.digest) and KEY_DIGEST_FORM.fullmatch(key.pattern)):
            raise ValueError("a digest of a concurrency key is none")
        if type(key.limit) is not int or not 1 <= key.limit <= LIMIT_MAX:
            raise ValueError("the limit of a concurrency key is out of range")
        if not key.text.isprintable() or not 1 <= len(key.text.encode()) <= TEXT_MAX_BYTES:
            raise ValueError("the text of a concurrency key is none")


def _check_once(job: NewJob) -> None:
    for use in (job.debounce, job.singleton):
        if use is not None and not KEY_DIGEST_FORM.fullmatch(use.digest):
            raise ValueError("the digest of a debounce or a singleton is none")
    if job.debounce is not None:
        for duration in (job.debounce.period_ms, job.debounce.most_ms):
            if type(duration) is not int or not 0 <= duration <= PERIOD_MAX_S * 1000:
                raise ValueError("a duration of a debounce is out of range")
    if job.singleton is not None and job.singleton.mode not in get_args(SingletonMode):
        raise ValueError("the mode of a singleton is none")


def public_id(prepared: Prepared) -> str:
    """The id of a job as people see it."""
    return shards.keys(prepared.pool).public_id(prepared.job.id)
