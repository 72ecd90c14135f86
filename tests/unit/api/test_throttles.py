"""Rates that a host sets: for each tenant and user, told with when to come back; none where the host sets none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache
from rest_framework.throttling import ScopedRateThrottle

from queueapp.api import throttles
from queueapp.api.throttles import TenantRate
from queueapp.store import shards
from tests.unit.api.host import ADD, job_in

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

GOOD = {"task": ADD, "args": [1]}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.5

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    cache.clear()
    made = Clock()
    monkeypatch.setattr(TenantRate, "timer", made)
    yield made
    cache.clear()


@pytest.fixture
def rates(settings: Any) -> Callable[..., None]:
    """The host sets these rates."""

    def set_rates(**rates: str | None) -> None:
        named = {f"ductor-{name}": rate for name, rate in rates.items()}
        settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": named}

    return set_rates


def test_c153_a_runaway_producer_is_pushed_back_and_nobody_else(
    opened: None, clock: Clock, rates: Callable[..., None], ask: Callable[..., Any]
) -> None:
    rates(enqueue="5/min")
    answers = [ask("POST", "jobs/", body=GOOD) for _ in range(12)]
    assert [answer.status_code for answer in answers] == [202] * 5 + [429] * 7
    last = answers[-1]
    assert (last.json()["code"], last["Retry-After"]) == ("throttled", "60")
    assert shards.reads("default").overview().waiting == 5
    # Another tenant, and other things that the same one may ask.
    assert ask("POST", "jobs/", body=GOOD, tenants="globex").status_code == 202
    assert ask("GET", "jobs/").status_code == 200
    assert ask("POST", f"jobs/{answers[0].json()['id']}/cancel/").status_code == 200
    clock.now += 59
    again = ask("POST", "jobs/", body=GOOD)
    assert (again.status_code, again["Retry-After"]) == (429, "1")
    clock.now += 1
    assert ask("POST", "jobs/", body=GOOD).status_code == 202


def test_each_user_of_a_tenant_has_a_rate(
    opened: None, clock: Clock, rates: Callable[..., None], ask: Callable[..., Any], signed_in: Callable[..., Any]
) -> None:
    rates(enqueue="1/min")
    statuses = []
    for _ in range(2):
        signed_in()
        statuses += [ask("POST", "jobs/", body=GOOD, tenants=who).status_code for who in ("acme", "acme", "globex")]
    assert statuses == [202, 429, 202] * 2


def test_a_tenant_does_not_multiply_its_rate_by_its_machines(
    opened: None, clock: Clock, rates: Callable[..., None], ask: Callable[..., Any]
) -> None:
    rates(read="1/min")
    statuses = [ask("GET", "jobs/", **{"X-Forwarded-For": f"10.0.0.{number}"}).status_code for number in range(3)]
    assert statuses == [200, 429, 429]
    # Who may speak for all is no tenant: there the machine is who asks.
    everybody = [
        ask("GET", "jobs/", tenants="ALL", **{"X-Forwarded-For": f"10.0.0.{number}"}).status_code
        for number in (1, 1, 2)
    ]
    assert everybody == [200, 429, 200]


def test_a_bulk_request_costs_as_much_as_its_jobs(
    opened: None, clock: Clock, rates: Callable[..., None], ask: Callable[..., Any]
) -> None:
    rates(enqueue="10/min")
    assert ask("POST", "jobs/bulk/", body={"jobs": [GOOD] * 9}).status_code == 200
    assert ask("POST", "jobs/", body=GOOD).status_code == 202
    assert ask("POST", "jobs/", body=GOOD).status_code == 429
    # One that goes beyond the rate is taken whole, and those after it wait.
    clock.now += 60
    assert ask("POST", "jobs/bulk/", body={"jobs": [GOOD] * 25}).status_code == 200
    refused = ask("POST", "jobs/bulk/", body={"jobs": [GOOD]})
    assert (refused.status_code, refused["Retry-After"]) == (429, "60")
    clock.now += 60
    assert ask("POST", "jobs/", body=GOOD).status_code == 202


def test_actions_have_their_own_rate(
    opened: None, clock: Clock, rates: Callable[..., None], ask: Callable[..., Any]
) -> None:
    rates(act="1/hour")
    job = job_in("pending")
    assert ask("POST", f"jobs/{job}/cancel/").status_code == 200
    refused = ask("POST", "dead-letters/retry/", body={"ids": [job]})
    assert (refused.status_code, refused["Retry-After"]) == (429, "3600")
    assert ask("POST", "jobs/", body=GOOD).status_code == 202


@pytest.mark.parametrize("setting", [{}, {"DEFAULT_THROTTLE_RATES": {}}, {"DEFAULT_THROTTLE_RATES": {"user": "1/day"}}])
def test_without_a_rate_nothing_is_limited(
    opened: None, clock: Clock, settings: Any, ask: Callable[..., Any], setting: dict[str, Any]
) -> None:
    settings.REST_FRAMEWORK = setting
    assert {ask("POST", "jobs/", body=GOOD).status_code for _ in range(20)} == {202}
    assert {ask("GET", "jobs/").status_code for _ in range(20)} == {200}


def test_a_rate_of_none_or_nothing(
    opened: None, clock: Clock, rates: Callable[..., None], ask: Callable[..., Any]
) -> None:
    rates(enqueue="0/min", read=None)
    refused = ask("POST", "jobs/", body=GOOD)
    assert (refused.status_code, refused["Retry-After"]) == (429, "60")
    assert ask("GET", "jobs/").status_code == 200


def test_the_host_s_own_throttles_hold_beside_ours(
    opened: None, clock: Clock, rates: Callable[..., None], ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also DRF's own by scope, which would raise for a scope of ours that has no rate."""

    class Never(ScopedRateThrottle):
        def allow_request(self, request: Any, view: Any) -> bool:
            return super().allow_request(request, view) and request.method != "POST"

        def wait(self) -> None:
            return None

    monkeypatch.setattr("queueapp.api.view.DuctorView.throttle_classes", [Never])
    rates(read="100/min")
    assert ask("GET", "jobs/").status_code == 200
    refused = ask("POST", "jobs/", body=GOOD)
    assert (refused.status_code, refused.json()["code"], refused["Retry-After"]) == (429, "throttled", "1")


def test_the_scopes_are_those_of_the_docs() -> None:
    assert {throttles.ENQUEUE, throttles.READ, throttles.ACT} == {"ductor-enqueue", "ductor-read", "ductor-act"}
