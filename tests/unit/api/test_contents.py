"""What is told of a job's contents, and to whom; masked in any case."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from queueapp.api import answers, job_shapes
from queueapp.inspection.jobs import find_job
from queueapp.store import shards
from tests.unit.api import host
from tests.unit.api.host import PAY, job_in, run

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

CARD = {"number": "4111", "holder": "Ada"}


def test_arguments_and_errors_are_for_those_who_may_see_contents(
    opened: None, ask: Callable[..., Any], signed_in: Callable[..., Any]
) -> None:
    given = {"task": PAY, "args": [CARD], "kwargs": {"password": "hunter2", "note": "n"}}
    job = ask("POST", "jobs/", body=given).json()["id"]
    run(fail=True)
    for path in (f"jobs/{job}/", f"dead-letters/{job}/"):
        told = ask("GET", path).json()
        assert told["arguments"] is None
        [error] = told["errors"]
        assert (error["error"], error["message"], error["traceback"]) == ("builtins.ValueError", None, None)
    signed_in("view_payload")
    answer = ask("GET", f"jobs/{job}/")
    told = answer.json()
    assert told["arguments"] == {
        "args": [{"number": "********", "holder": "Ada"}],
        "kwargs": {"password": "********", "note": "n"},
    }
    [error] = told["errors"]
    assert (error["message"], error["traceback"]) == ("secret", "secret")
    assert b"hunter2" not in answer.content
    assert b"4111" not in answer.content


def test_what_a_job_says_is_masked(opened: None, ask: Callable[..., Any]) -> None:
    body = {"task": PAY, "args": [CARD], "metadata": {"order": 7, "api_key": "k"}}
    job = ask("POST", "jobs/", body=body).json()["id"]
    leased = host.lease()
    progress = {"current": 1, "total": 3, "message": "packing"}
    shards.store("default").save(leased.id, leased.attempts, {"progress": json.dumps(progress).encode()})
    told = ask("GET", f"jobs/{job}/").json()
    assert told["metadata"] == {"order": 7, "api_key": "********"}
    assert told["progress"] == progress
    result = {"token": "t", "deep": [{"Authorization": "Bearer t"}], "sum": 3}
    host.complete(leased, result)
    for path in (f"jobs/{job}/", f"jobs/{job}/result/"):
        assert ask("GET", path).json()["result"] == {
            "token": "********",
            "deep": [{"Authorization": "********"}],
            "sum": 3,
        }


def test_the_result_of_a_task_that_is_all_sensitive_is_hidden(opened: None, ask: Callable[..., Any]) -> None:
    job = job_in("completed", task=host.closed)
    assert ask("GET", f"jobs/{job}/result/").json() == {"id": job, "result": "********"}


def test_a_result_there_is_only_of_a_completed_job(opened: None, ask: Callable[..., Any]) -> None:
    for state in host.STATES:
        job = job_in(state)
        answer = ask("GET", f"jobs/{job}/result/")
        if state == "completed":
            assert (answer.status_code, answer.json()) == (200, {"id": job, "result": 3})
        else:
            assert (answer.status_code, answer.json()["code"]) == (409, "not_completed")
            assert state in (answer.json()["state"], answer.json()["outcome"])
        host.end_all()


def test_null_is_a_result(opened: None, ask: Callable[..., Any]) -> None:
    job = job_in("pending")
    run(None)
    assert ask("GET", f"jobs/{job}/result/").json() == {"id": job, "result": None}


def test_what_is_told_has_the_shape_that_is_described(opened: None) -> None:
    seen = find_job(job_in("dead"))
    assert seen is not None
    assert set(answers.brief(seen, str)) == set(job_shapes.Brief().fields)
    whole = answers.whole(seen, str, known=True, contents=True)
    assert set(whole) == set(job_shapes.Job().fields)
    assert set(whole["errors"][0]) == set(job_shapes.Attempt().fields)
