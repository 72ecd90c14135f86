"""Pause, resume, drain, obliterate over HTTP: who may, what it answers, and that nothing is done by halves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from queueapp import sync
from queueapp.api import operating
from queueapp.api.view import DuctorView
from queueapp.inspection.draining import left
from queueapp.store import shards
from queueapp.store.store import Store
from tests.unit.api import host
from tests.unit.api.host import everything, job_in, lease

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db(transaction=True)]

Ask = Callable[..., Any]
NAME = {"name": "default"}


@pytest.fixture
def may(opened: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)


def test_a_pool_pauses_and_resumes(may: None, ask: Ask) -> None:
    paused = {"pool": "default", "tenant": None, "lane": None, "paused": True, "changed": True, "in_force": True}
    assert ask("POST", "pools/default/pause/", tenants="ALL").json() == paused
    assert ask("POST", "pools/default/pause/", tenants="ALL").json() == {**paused, "changed": False}
    job_in("pending")
    with pytest.raises(IndexError):
        lease()
    resumed = ask("POST", "pools/default/resume/", tenants="ALL").json()
    assert resumed == {**paused, "paused": False}
    assert lease().attempts == 1


def test_one_pauses_one_s_own_tenant_and_its_lanes(may: None, ask: Ask) -> None:
    answer = ask("POST", "tenants/acme/pause/", body={"lane": "slow"}).json()
    assert (answer["tenant"], answer["lane"], answer["paused"]) == ("acme", "slow", True)
    ask("POST", "tenants/acme/pause/", body={})
    reads = shards.reads("default")
    assert reads.is_paused("acme")
    assert reads.is_paused("acme", "slow")
    ask("POST", "tenants/acme/resume/", body={})
    assert (reads.is_paused("acme"), reads.is_paused("acme", "slow")) == (False, True)
    assert ask("POST", "tenants/acme/pause/", body={"pool": "nowhere"}).status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        *(f"pools/default/{verb}/" for verb in ("pause", "resume", "drain", "obliterate")),
        *(f"tenants/acme/{verb}/" for verb in ("pause", "resume")),
    ],
)
def test_each_needs_the_permission(opened: None, ask: Ask, path: str) -> None:
    job_in("pending")
    before = everything()
    for tenants in ("acme", "ALL"):
        answer = ask("POST", path, tenants=tenants, body=NAME)
        assert (answer.status_code, answer.json()["code"]) == (403, "permission")
        assert "queueapp.operate_pool" in answer.json()["detail"]
    assert everything() == before


def test_drain_pauses_and_says_what_runs_until_nothing_does(may: None, ask: Ask) -> None:
    job_in("pending")
    job = lease()
    job_in("pending")
    answer = ask("POST", "pools/default/drain/", tenants="ALL")
    assert answer.status_code == 202
    assert answer.json() == {"pool": "default", "paused": True, "running": 1, "waiting": 1}
    host.complete(job, None)
    answer = ask("POST", "pools/default/drain/", tenants="ALL")
    assert (answer.status_code, answer.json()["running"], answer.json()["waiting"]) == (200, 0, 1)


def test_drain_says_so_when_somebody_resumed_the_pool_meanwhile(
    may: None, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operating, "left", lambda pool: (sync.resume(pool), left(pool))[1])
    assert ask("POST", "pools/default/drain/", tenants="ALL").json()["paused"] is False


def test_obliterate_wants_the_name_and_no_running_job(may: None, ask: Ask) -> None:
    job_in("dead")
    job_in("active")
    before = everything()
    path = "pools/default/obliterate/"
    assert set(ask("POST", path, tenants="ALL", body={}).json()) == {"name"}
    [wrong] = ask("POST", path, tenants="ALL", body={"name": "reports"}).json()["name"]
    assert "“reports” is not “default”" in wrong
    running = ask("POST", path, tenants="ALL", body=NAME)
    assert (running.status_code, running.json()["code"]) == (409, "still_running")
    assert everything() == before
    done = ask("POST", path, tenants="ALL", body={**NAME, "force": True})
    assert (done.status_code, done.json()) == (200, {"pool": "default", "jobs": 2, "done": True})
    assert ask("GET", "jobs/?state=dead").json()["results"] == []


def test_a_request_removes_for_so_long_and_the_next_goes_on(
    may: None, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_in("dead")
    monkeypatch.setattr("queueapp.api.operating.MOST_OF_REQUEST_S", 0.0)
    obliterate = Store.obliterate
    monkeypatch.setattr(Store, "obliterate", lambda self, token, **how: obliterate(self, token, **how | {"limit": 1}))
    answer = ask("POST", "pools/default/obliterate/", tenants="ALL", body=NAME)
    assert (answer.status_code, answer.json()["done"]) == (202, False)
    meanwhile = ask("POST", "jobs/", body={"task": host.ADD, "args": [1]})
    assert (meanwhile.status_code, meanwhile.json()["code"]) == (503, "obliterating")
    monkeypatch.setattr(Store, "obliterate", obliterate)
    monkeypatch.setattr("queueapp.api.operating.MOST_OF_REQUEST_S", 20.0)
    assert ask("POST", "pools/default/obliterate/", tenants="ALL", body=NAME).json()["done"]
    assert ask("POST", "jobs/", body={"task": host.ADD, "args": [1]}).status_code == 202


def test_who_asked_stands_in_the_log(
    may: None, ask: Ask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operating, "user_name", lambda request: "ann")
    with caplog.at_level(logging.INFO, "queueapp"):
        for verb, body in (("pause", {}), ("resume", {}), ("drain", {}), ("obliterate", NAME)):
            ask("POST", f"pools/default/{verb}/", tenants="ALL", body=body)
        ask("POST", "tenants/acme/pause/", body={})
    told: list[Any] = [one for one in caplog.records if hasattr(one, "by")]
    assert [one.getMessage() for one in told] == ["Paused", "Resumed", "Paused", "Obliterated", "Paused"]
    assert {one.by for one in told} == {"ann"}
