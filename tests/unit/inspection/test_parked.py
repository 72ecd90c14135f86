"""What people see of jobs that came above a rate: the reason, the tenant, the pool, the list."""

from __future__ import annotations

import pytest

from queueapp import Key
from queueapp.codec import digest
from queueapp.inspection.explain import explain
from queueapp.inspection.fairness import certificate
from queueapp.inspection.jobs import list_jobs
from queueapp.inspection.overview import pool_status
from queueapp.inspection.tenants import tenants_in
from queueapp.producer.results import DuctorResult
from queueapp.store.configuration import KeyLimits, Rate, ScopeLimits
from queueapp.store.store import Store
from tests.producing import add, run_waiting

pytestmark = pytest.mark.django_db

HOURLY = Rate(rate=60, period_ms=3_600_000)


def parked(store: Store, count: int = 2) -> list[DuctorResult]:
    store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=HOURLY)])
    task = add.using(tenant="acme", on_throttle="park")
    task.enqueue(0)
    return [task.enqueue(number) for number in range(1, count + 1)]


def test_why_names_the_rate_and_the_moment(store: Store) -> None:
    first, second = parked(store)
    why = explain(second.id)
    assert (why.state, why.reasons[0].kind, why.reasons[0].blocks) == ("backlog", "parked", True)
    assert why.sentence.startswith(
        "It came above the rate of its tenant acme (60 per 3600 s) and was parked; it is due"
    )
    assert why.until is not None
    assert why.estimate is not None
    assert why.estimate.earliest == why.until
    earlier = explain(first.id).until
    assert earlier is not None
    assert earlier < why.until


def test_why_names_a_key_only_to_those_who_may_see_contents(store: Store) -> None:
    pattern = "customer:{a}"
    store.configure(1, keys=[KeyLimits(pattern=digest(pattern), text=pattern, rate=HOURLY)])
    task = add.using(tenant="acme", on_throttle="park", concurrency=Key(pattern, 5))
    task.enqueue(7)
    result = task.enqueue(7)
    assert "the rate of one of its keys (60 per 3600 s)" in explain(result.id).sentence
    assert "the rate of its key 'customer:7'" in explain(result.id, contents=True).sentence


def test_why_of_a_rate_that_was_taken_away(store: Store) -> None:
    [result] = parked(store, 1)
    store.configure(2, scopes=[ScopeLimits(tenant="acme", rate=None)])
    assert "above a rate that is not there any more" in explain(result.id).sentence


def test_a_tenant_whose_only_work_is_parked_stays_visible_with_the_reason(store: Store) -> None:
    parked(store, 3)
    run_waiting(store)
    [seen] = tenants_in("default", ["acme"])
    assert (seen.waiting, seen.parked) == (3, 3)
    [standing] = certificate("default").tenants
    assert (standing.tenant, standing.state, standing.waiting) == ("acme", "parked", 3)
    status = pool_status("default")
    assert (status.waiting, status.parked, status.tenants) == (3, 3, {"acme": 3})


def test_parked_jobs_are_listed_by_their_moment(store: Store) -> None:
    ids = [result.id for result in parked(store, 3)]
    page = list_jobs("default", "backlog", tenant="acme")
    assert [job.id for job in page.jobs] == ids
    earlier, later = page.jobs[0].due_at, page.jobs[1].due_at
    assert earlier is not None
    assert later is not None
    assert earlier < later
    assert page.jobs[0].wait is None
    assert [job.id for job in list_jobs("default", "pending").jobs] != ids
