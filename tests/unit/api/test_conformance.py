"""The API against its own description, by Schemathesis: generated requests, right ones and wrong ones.

No answer is a 5xx, every status and body is a described one, right requests are taken and wrong ones refused. The
examples are the same in every run; the store is a real one, with jobs in every state among which the paths choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.urls import include, path
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import negative_data_rejection, positive_data_acceptance

from queueapp.api import urls
from queueapp.api.schema import operation_of
from queueapp.api.view import DuctorView
from queueapp.models import Schedule
from queueapp.store import shards
from tests.unit.api.host import ADD, STATES, job_in

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

EXAMPLES = 10
HEADERS = {"X-Tenants": "acme"}
F = TypeVar("F", bound=Callable[..., Any])


def operations() -> dict[str, tuple[str, str]]:
    """Operation → route and verb, of every method that is described."""
    found = {}
    for route, view in urls.ROUTES.values():
        for verb in ("get", "post"):
            if hasattr(view, verb):
                found[operation_of(view, verb).name] = (route, verb)
    return found


OPERATIONS = operations()


@contextmanager
def bound(addresses: str) -> Iterator[Any]:
    """The schema of these addresses, bound to the site."""
    schema = schemathesis.openapi.from_dict(
        SchemaGenerator(patterns=[path("api/", include(addresses))]).get_schema(public=True)
    )
    schema.app = WSGIHandler()
    # As Django's own test client does: the end of a request must not close the connection of the test.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield schema
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def described(opened: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Whoever asks may see contents and discard."""
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)
    with bound("queueapp.api.urls") as schema:
        yield schema


def has_inputs(name: str) -> bool:
    """Whether there is anything but a path, in which everything is a possible name."""
    route, verb = OPERATIONS[name]
    view = next(view for known, view in urls.ROUTES.values() if known == route)
    described = operation_of(view, verb)
    return bool(described.query or described.request or described.headers)


def real(case: Any, jobs: list[str]) -> None:
    """What is there instead of what was generated, where only the project can say what there is."""
    if "job_id" in case.path_parameters:
        case.path_parameters["job_id"] = jobs[len(str(case.path_parameters)) % len(jobs)]
    schedule = Schedule.objects.values_list("pk", flat=True).first()
    for part, there in (("pool_name", "default"), ("tenant_key", "acme"), ("schedule_id", str(schedule))):
        if part in case.path_parameters:
            case.path_parameters[part] = there
    query = case.query or {}
    query.pop("cursor", None)
    if "pool" in query:
        query["pool"] = "default"
    body = case.body if isinstance(case.body, dict) else {}
    if "pool" in body:
        body["pool"] = "default"
    if "matching" in case.path or "/tenants/" in case.path:
        body.pop("as_of", None)
        body.pop("cursor", None)
        return
    if "/edit/" in case.path:
        body |= {"args": [2], "kwargs": {}}  # what a task takes, no schema can say
        return
    for item in body.get("jobs", [body]):
        if "task" in item:
            item |= {"task": ADD, "args": [1], "kwargs": {}}
            # Which pools there are, which years, and how large what is kept may be, no schema can say.
            for name in ("pool", "run_after", "deadline", "metadata"):
                item.pop(name, None)


def settings_of() -> Callable[[F], F]:
    """The same few examples in every run."""
    made: Callable[[F], F] = settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return made


@pytest.mark.parametrize("name", OPERATIONS)
def test_generated_requests_get_described_answers(described: Any, name: str) -> None:
    """Right ones: as they come, and with names of what there is, which must be taken then."""
    jobs = [job_in(state) for state in STATES]
    Schedule.objects.create(name="nightly", task=ADD, args=[1], tenant="acme", cron="0 3 * * *")

    @settings_of()
    @given(case=described.find_operation_by_id(name).as_strategy(GenerationMode.POSITIVE))
    def conforms(case: Any) -> None:
        case.call_and_validate(headers=HEADERS, excluded_checks=[positive_data_acceptance])
        real(case, jobs)
        case.call_and_validate(headers=HEADERS)

    conforms()
    assert shards.store("default").verify() == []


@pytest.mark.parametrize("name", [name for name in OPERATIONS if has_inputs(name)])
def test_wrong_requests_are_refused(described: Any, name: str) -> None:
    # Of a bulk request, wrong items are refused one by one.
    excluded = [negative_data_rejection] if name == "ductor_jobs_bulk" else []

    @settings_of()
    @given(case=described.find_operation_by_id(name).as_strategy(GenerationMode.NEGATIVE))
    def conforms(case: Any) -> None:
        case.call_and_validate(headers=HEADERS, excluded_checks=excluded)

    conforms()
    assert shards.store("default").verify() == []


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", [name for name, (route, _) in OPERATIONS.items() if "job_id" in route])
def test_jobs_of_every_state_get_described_answers(described: Any, name: str, state: str) -> None:
    operation = described.find_operation_by_id(name)
    for _ in range(2):
        operation.Case(path_parameters={"job_id": job_in(state)}).call_and_validate(headers=HEADERS)


def test_jobs_that_are_taken_get_described_answers(described: Any) -> None:
    operation = described.find_operation_by_id("ductor_jobs_start")
    statuses = []
    for args in ([1], [1], [2]):
        headers = {**HEADERS, "Idempotency-Key": "k"}
        case = operation.Case(body={"task": ADD, "args": args}, media_type="application/json")
        statuses.append(case.call_and_validate(headers=headers).status_code)
    assert statuses == [202, 200, 409]
