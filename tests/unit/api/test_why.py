"""`GET jobs/{id}/why/`: one's own jobs only, and nothing in it of others' or of the pool as a whole."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from django.utils import timezone

from queueapp.api import job_shapes
from queueapp.models import OutboxEntry
from queueapp.store import shards
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.ids import new_id
from tests.unit.api import host
from tests.unit.api.host import ADD, STATES, add, job_in, lease

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db, pytest.mark.usefixtures("opened")]

Ask = Callable[..., Any]
versions = count(1)


def configure(*scopes: ScopeLimits, **pool: Any) -> None:
    shards.store("default").configure(next(versions), pool=PoolConf(**pool), scopes=scopes)


def test_the_answer_has_the_shape_that_is_described(ask: Ask) -> None:
    for state in STATES:
        answer = ask("GET", f"jobs/{job_in(state)}/why/")
        assert answer.status_code == 200
        said = answer.json()
        assert set(said) == set(job_shapes.Why().fields), state
        assert all(set(reason) == set(job_shapes.Reason().fields) for reason in said["reasons"])
        assert said["estimate"] is None or set(said["estimate"]) == set(job_shapes.Estimate().fields)
        assert said["sentence"].endswith(".")
        assert datetime.fromisoformat(said["as_of"]).tzinfo is not None
        assert said["url"] == f"http://testserver/api/jobs/{said['id']}/"
        if state in ("pending", "scheduled", "active"):
            lease() if state == "pending" else None


def test_who_holds_its_place_are_jobs_of_one_s_own(ask: Ask) -> None:
    configure(ScopeLimits(tenant="acme", max_in_flight=1), max_in_flight=2)
    theirs = add.using(tenant="globex", on_commit=False).enqueue(1).id
    lease()
    mine = add.using(tenant="acme", on_commit=False).enqueue(1).id
    lease()
    waiting = job_in("pending")
    said = ask("GET", f"jobs/{waiting}/why/").json()
    assert [reason["kind"] for reason in said["reasons"]] == ["pool_full", "tenant_full", "turn"]
    assert (said["reasons"][0]["used"], said["reasons"][0]["limit"], said["reasons"][0]["held_by"]) == (None, None, [])
    assert (said["reasons"][1]["used"], said["reasons"][1]["held_by"]) == (1, [mine])
    assert theirs not in str(said)
    whole = ask("GET", f"jobs/{waiting}/why/", tenants="ALL").json()
    assert (whole["reasons"][0]["used"], whole["reasons"][0]["limit"]) == (2, 2)


def test_another_tenant_s_job_and_a_hidden_one_are_not_there(ask: Ask) -> None:
    gone = f"{shards.keys('default').code}.0.{new_id()}"
    hidden = job_in("dead", task=host.hidden)
    answers = [ask("GET", f"jobs/{each}/why/") for each in (job_in("dead", "globex"), hidden, gone, "x")]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1


def test_kept_in_the_outbox_of_one_s_own_only(ask: Ask) -> None:
    ids = {}
    for tenant in ("acme", "globex"):
        ids[tenant] = f"{shards.keys('default').code}.0.{new_id()}"
        OutboxEntry.objects.create(
            job_id=ids[tenant],
            pool="default",
            tenant=tenant,
            task=ADD,
            job={},
            payload=b"",
            error="The store at db.internal is away.",
            due=timezone.now() + timedelta(minutes=1),
        )
    answer = ask("GET", f"jobs/{ids['acme']}/why/")
    assert (answer.status_code, answer.json()["state"]) == (200, "deferred")
    assert "db.internal" not in answer.content.decode()
    assert ask("GET", f"jobs/{ids['globex']}/why/").status_code == 404
