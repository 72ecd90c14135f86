"""Rates that a host sets hold for runs as for jobs: starting is `ductor-enqueue`, acting `ductor-act`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flows import models
from tests.unit.api.test_throttles import Clock, clock, rates

__all__ = ["clock", "rates"]

pytestmark = [pytest.mark.urls("tests.flows.api.host"), pytest.mark.django_db(transaction=True)]

Ask = Callable[..., Any]
START = {"args": [1]}


def test_a_runaway_producer_is_pushed_back_and_nobody_else(
    opened: None, clock: Clock, rates: Callable[..., None], ask: Ask
) -> None:
    rates(enqueue="2/min")
    answers = [ask("POST", "flows/hold_on/runs/", body=START) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [202, 202, 429, 429]
    assert (answers[-1].json()["code"], answers[-1]["Retry-After"]) == ("throttled", "60")
    assert models.Run.objects.count() == 2
    run = answers[0].json()["id"]
    assert ask("POST", "flows/hold_on/runs/", body=START, tenants="globex").status_code == 202
    assert ask("GET", f"runs/{run}/").status_code == 200
    assert ask("POST", f"runs/{run}/cancel/").status_code == 200
    clock.now += 60
    assert ask("POST", "flows/hold_on/runs/", body=START).status_code == 202


def test_acting_has_a_rate_of_its_own(opened: None, clock: Clock, rates: Callable[..., None], ask: Ask) -> None:
    rates(act="1/hour", read="1/hour")
    run = ask("POST", "flows/hold_on/runs/", body=START).json()["id"]
    assert ask("POST", f"runs/{run}/events/", body={"name": "go"}).status_code == 202
    assert ask("POST", f"runs/{run}/cancel/").status_code == 429
    assert ask("GET", "runs/").status_code == 200
    assert ask("GET", f"runs/{run}/events/").status_code == 429
