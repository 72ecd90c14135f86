"""The statements whose text is kept do what the ORM does, on whatever database the tests run."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from flows import models, statements
from flows.rows import new_run
from flows.snapshot import Run
from flows.values import Json

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def run() -> models.Run:
    row = new_run(Run(id="r1", flow="f", definition="d", input={"a": [1, "ä"]}, tenant="acme"), pool="p")
    row.save(force_insert=True)
    return row


def inserted(*rows: dict[str, Any]) -> list[models.StepRun]:
    """As the ORM finds them."""
    ids = statements.insert(models.StepRun, [{"run": "r1", **row} for row in rows])
    found = models.StepRun.objects.in_bulk(ids)
    return [found[row_id] for row_id in ids]


@pytest.mark.parametrize("output", [None, 0, "", "text", [], {"a": [None, True, 1.5]}, False])
def test_values_come_back_as_they_were_and_as_the_orm_has_them(output: Json) -> None:
    [row] = inserted({"step": "a", "output": output, "withdrawn": True, "total": None, "started_ms": 2**40})
    assert (row.output, row.withdrawn, row.total, row.started_ms) == (output, True, None, 2**40)
    statements.update(models.StepRun, {"output": [output], "withdrawn": False}, {"id": row.id})
    names = ("output", "withdrawn", "total", "started_ms")
    [again] = statements.select(models.StepRun, names, {"run_id": "r1"})
    assert tuple(again) == ([output], False, None, 2**40)
    assert type(again[1]) is bool
    statements.update(models.StepRun, {"output": output}, {"id": row.id})
    assert models.StepRun.objects.filter(output__isnull=True).exists() == (output is None)


def test_moments_are_read_as_the_orm_reads_them(run: models.Run) -> None:
    [row] = statements.select(models.Run, ("created", "input"), {"id": "r1"})
    assert tuple(row) == (models.Run.objects.get().created, run.input)


def test_columns_that_are_not_named_get_their_defaults() -> None:
    [row] = inserted({"step": "a"})
    plain = models.StepRun(run_id="r1", step="a", id=row.id)
    for field in models.StepRun._meta.concrete_fields:
        assert getattr(row, field.attname) == getattr(plain, field.attname), field.name


def test_ids_are_told_in_the_order_of_the_rows_however_many_there_are() -> None:
    number = 3 * statements.MOST_PARAMETERS // len(models.StepRun._meta.concrete_fields)
    rows = inserted(*({"step": f"s{index}"} for index in range(number)))
    assert [row.step for row in rows] == [f"s{index}" for index in range(number)]


def test_only_rows_with_all_the_values_and_none_of_the_others_are_changed() -> None:
    inserted({"step": "a", "attempt": 2}, {"step": "b", "attempt": 2, "report_attempt": 2}, {"step": "c"})
    current, told = {"run_id": "r1", "attempt": 2}, {"report_attempt": 2}
    assert statements.select(models.StepRun, ("step",), current, unless=told) == [("a",)]
    assert statements.update(models.StepRun, {"error": "é", **told}, current, unless=told) == 1
    assert statements.update(models.StepRun, {"error": "x", **told}, current, unless=told) == 0
    assert [*models.StepRun.objects.order_by("step").values_list("error", flat=True)] == ["é", "", ""]
    assert statements.update(models.StepRun, {"error": "x"}, {"run_id": "r2"}) == 0


def test_a_column_may_be_read_as_something_else() -> None:
    inserted({"step": "a", "output": [1], "attempt": 1}, {"step": "b", "output": [2], "attempt": 2})
    instead = {"output": ("CASE WHEN {attempt} < %s OR {step} IN (%s) THEN {output} END", [2, "c"])}
    found = statements.select(models.StepRun, ("step", "output"), {"run_id": "r1"}, instead=instead)
    assert sorted(found, key=str) == [
        ["a", [1]],
        ["b", None],
    ]


def test_what_has_been_done_is_deleted_and_nothing_else() -> None:
    number = 2 * statements.MOST_PARAMETERS + 3
    made = models.FlowCommand.objects.bulk_create(
        models.FlowCommand(run_id="r1", command={"do": "Wake"}, made_ms=1) for _ in range(number)
    )
    kept = made.pop(7)
    statements.delete(models.FlowCommand, [row.pk for row in made])
    assert [row.pk for row in models.FlowCommand.objects.all()] == [kept.pk]
    statements.delete(models.FlowCommand, [])


def test_a_row_is_the_model_s_and_what_it_was_not_wanted_for_is_read_later(run: models.Run) -> None:
    models.Run.objects.update(output={"b": 1})
    found = statements.instance(models.Run, {"id": "r1"}, without=("output", "created"))
    assert found is not None
    assert (found, found.input, found.tenant, found._state.adding) == (run, run.input, "acme", False)
    with CaptureQueriesContext(connection) as asked:
        assert (found.output, found.created) == ({"b": 1}, models.Run.objects.get().created)
    assert len(asked) == 3
    assert statements.instance(models.Run, {"id": "r2"}) is None
