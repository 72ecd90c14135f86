"""The API of flows against its own description, by Schemathesis: see `tests/unit/api/test_conformance.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from flows.api import urls
from queueapp.api.schema import operation_of
from queueapp.api.view import DuctorView
from tests.flows.api.host import STATES, run_in
from tests.unit.api.test_conformance import HEADERS, bound, settings_of

pytestmark = [pytest.mark.urls("tests.flows.api.host"), pytest.mark.django_db(transaction=True)]

OPERATIONS = {
    operation_of(view, verb).name: operation_of(view, verb)
    for _, view in urls.ROUTES.values()
    for verb in ("get", "post")
    if hasattr(view, verb)
}


@pytest.fixture
def described(opened: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Whoever asks may see contents."""
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)
    with bound("flows.api.urls") as schema:
        yield schema


def real(case: Any, runs: list[str]) -> None:
    """What is there instead of what was generated, where only the project can say what there is."""
    for part, there in (("flow_name", "sum_up"), ("step_name", "second")):
        if part in case.path_parameters:
            case.path_parameters[part] = there
    if "run_id" in case.path_parameters:
        case.path_parameters["run_id"] = runs[len(str(case.path_parameters)) % len(runs)]
    (case.query or {}).pop("cursor", None)
    body = case.body if isinstance(case.body, dict) else {}
    if "flow_name" in case.path_parameters:
        case.body, case.media_type = {**body, "args": [1], "kwargs": {}}, "application/json"  # no schema can say it
    elif "payload" in body:
        body["payload"] = {"more": 1}  # nor what databases do not take


@pytest.mark.parametrize("name", OPERATIONS)
def test_generated_requests_get_described_answers(described: Any, name: str) -> None:
    """Right ones: as they come, and with names of what there is, which must be taken then."""
    runs = [run_in(state) for state in reversed(STATES)]

    @settings_of()
    @given(case=described.find_operation_by_id(name).as_strategy(GenerationMode.POSITIVE))
    def conforms(case: Any) -> None:
        case.call_and_validate(headers=HEADERS, excluded_checks=[positive_data_acceptance])
        real(case, runs)
        case.call_and_validate(headers=HEADERS)

    conforms()


@pytest.mark.parametrize("name", [name for name, said in OPERATIONS.items() if said.query or said.request])
def test_wrong_requests_are_refused(described: Any, name: str) -> None:
    @settings_of()
    @given(case=described.find_operation_by_id(name).as_strategy(GenerationMode.NEGATIVE))
    def conforms(case: Any) -> None:
        case.call_and_validate(headers=HEADERS)

    conforms()


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", [name for name, said in OPERATIONS.items() if "run_id" in said.path])
def test_runs_of_every_state_get_described_answers(described: Any, name: str, state: str) -> None:
    operation = described.find_operation_by_id(name)
    run = run_in(state)
    parts = {part: {"run_id": run, "step_name": "second"}[part] for part in OPERATIONS[name].path}
    for _ in range(2):
        body = {"body": {"name": "go"}} if name == "ductor_runs_send_event" else {}
        case = operation.Case(path_parameters=parts, media_type="application/json" if body else None, **body)
        case.call_and_validate(headers=HEADERS)
