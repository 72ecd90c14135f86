"""A host with the API in its URLs, a few tasks, and a worker of one job."""

from __future__ import annotations

import json

from django.http import HttpRequest
from django.urls import include, path

import queueapp
from queueapp.api import ALL
from queueapp.store import shards
from queueapp.store.records import Completed, Failed

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


@queueapp.task
def hidden(a: int) -> int:
    return a


ADD = f"{__name__}.add"


def only_acme(request: HttpRequest) -> set[str]:
    return {"acme"}


def of_header(request: HttpRequest) -> object:
    """What the header says: names with commas, or ALL."""
    said = request.headers.get("X-Tenants", "")
    return ALL if said == "ALL" else {name for name in said.split(",") if name}


def run(result: object = 3, *, fail: bool = False) -> None:
    """A worker that runs one job of the default pool."""
    store = shards.store("default")
    leased = store.check_and_lease("w1", 1, want=1, begin=1, lease_ms=30_000).jobs[0]
    if fail:
        error = json.dumps({"class": "builtins.ValueError", "message": "secret", "traceback": "secret"}).encode()
        store.fail([Failed(id=leased.id, attempts=leased.attempts, run_ms=1, error=error)])
    else:
        encoded = json.dumps(result).encode()
        store.complete([Completed(id=leased.id, attempts=leased.attempts, run_ms=1, result=encoded)])
