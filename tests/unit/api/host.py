"""A host with the API in its URLs, a few tasks, and a worker of one job."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime

from django.http import HttpRequest
from django.urls import include, path

import queueapp
from queueapp.api import ALL
from queueapp.conf import settings
from queueapp.inspection import bulk
from queueapp.inspection.jobs import find_job
from queueapp.producer.task import DuctorTask
from queueapp.store import connection, shards
from queueapp.store.records import Completed, Failed, LeasedJob

urlpatterns = [
    path("api/", include("queueapp.api.urls")),
    path("<slug:site>/deep/", include(("queueapp.api.urls", "ductor"), namespace="inner")),
]


@queueapp.task(api=True)
def add(a: int, b: int = 0, *, note: str = "", extra: object = None) -> int:
    return a + b


@queueapp.task(api=True, takes_context=True)
def with_context(context: object, a: int) -> int:
    return a


@queueapp.task(api=True)
def anything(**given: object) -> None: ...


@queueapp.task(api=True)
def whatever(*given: object, **named: object) -> None: ...


@queueapp.task(api=True, sensitive=["card.number"], typed=True)
def pay(card: dict[str, object], *, password: str = "", note: str = "") -> object: ...


@queueapp.task(api=True, sensitive=True)
def closed(a: int) -> int:
    return a


@queueapp.task(api=True, concurrency=queueapp.Key("customer:{customer_id}", limit=2))
def limited(customer_id: object) -> None: ...


@queueapp.task
def hidden(a: int) -> int:
    return a


ADD = f"{__name__}.add"
PAY = f"{__name__}.pay"
HIDDEN = f"{__name__}.hidden"


def only_acme(request: HttpRequest) -> set[str]:
    return {"acme"}


def of_header(request: HttpRequest) -> object:
    """What the header says: names with commas, or ALL."""
    said = request.headers.get("X-Tenants", "")
    return ALL if said == "ALL" else {name for name in said.split(",") if name}


def run(result: object = 3, *, fail: bool = False) -> str:
    """A worker that takes one job of the default pool and ends it; its public id."""
    leased = lease()
    if fail:
        error = json.dumps({"class": "builtins.ValueError", "message": "secret", "traceback": "secret"}).encode()
        shards.store("default").fail(
            [Failed(id=leased.id, attempts=leased.attempts, run_ms=1, error=error, fingerprint="abcdef012345")]
        )
    else:
        complete(leased, result)
    return shards.keys("default").public_id(leased.id)


def complete(leased: LeasedJob, result: object) -> None:
    """The job has returned this."""
    encoded = None if result is None else json.dumps(result).encode()
    ended = Completed(id=leased.id, attempts=leased.attempts, run_ms=1, result=encoded)
    shards.store("default").complete([ended])


def end_all(*, dead: bool = False) -> None:
    """Everything that waits has been run to its end, or has died."""
    store, worker, seq = shards.store("default"), f"w{secrets.token_hex(4)}", 0
    error = b'{"class": "builtins.ValueError", "message": "no", "traceback": ""}'
    while jobs := store.check_and_lease(worker, seq := seq + 1, want=100, begin=0, lease_ms=30_000).jobs:
        if dead:
            store.fail([Failed(id=job.id, attempts=job.attempts, run_ms=1, error=error) for job in jobs])
        else:
            store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=1, result=b"3") for job in jobs])


def lease() -> LeasedJob:
    """A worker that takes one job of the default pool and is busy with it."""
    worker = f"w{secrets.token_hex(4)}"
    return shards.store("default").check_and_lease(worker, 1, want=1, begin=1, lease_ms=30_000).jobs[0]


def job_in(state: str, tenant: str = "acme", task: DuctorTask | None = None) -> str:
    """A new job of this state (of an ended one: outcome) in the default pool, which has no other that could run."""
    plain = (task or add).using(tenant=tenant, on_commit=False)
    if state == "scheduled":
        return plain.using(run_after=datetime(2099, 1, 1, tzinfo=UTC)).enqueue(1).id
    if state == "expired":
        job = plain.using(expires_after=0.001).enqueue(1).id
        store = shards.store("default")
        while not store.promote_due().expired:
            pass
        return job
    job = plain.enqueue(1).id
    match state:
        case "active":
            lease()
        case "dead" | "discarded":
            run(fail=True)
        case "completed":
            run()
        case "cancelled":
            bulk.cancel_many([job])
    if state == "discarded":
        bulk.discard_many([job])
    return job


STATES = ("pending", "scheduled", "active", "dead", "completed", "cancelled", "expired", "discarded")
"""What `job_in` makes, and what `state_of` says of it."""


def state_of(job_id: str) -> str:
    """The state of a job; of an ended one its outcome."""
    found = find_job(job_id)
    assert found is not None
    return found.state


def everything() -> dict[bytes, object]:
    """Every key of the test's shards with its bytes; no call of the API that is refused may change one."""
    client = connection.commands()
    keys = sorted(client.scan_iter(f"*{settings.namespace}:*", count=1000))
    return {key: client.dump(key) for key in keys}
