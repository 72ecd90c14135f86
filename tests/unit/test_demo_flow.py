"""The flow of the demonstration: a file becomes chunks, rows and a report; what is promised of it is judged."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from ductor_project.demo.checking import HEADER
from ductor_project.demo.flows import receive
from ductor_project.demo.models import ROWS_PER_CHUNK, ImportedRow, Upload, csv_rows
from ductor_project.demo.show.flowing import BUSY_CHUNK, Flowed, judge, sentences, with_busy_row
from ductor_project.demo.show.load import File, csv_text
from ductor_project.demo.tasks import BUSY_CUSTOMER
from flows import get_run
from flows.models import ItemRun
from queueapp.bench.harness import Report
from queueapp.testing import drain, immediate, recorded

CHUNKS = 4
TEXT = with_busy_row(csv_text(File(at_s=0, tenant="acme", name="a.csv", chunks=CHUNKS)))


@pytest.mark.django_db
def test_an_upload_as_a_flow_is_split_validated_imported_and_reported_on(client: Client) -> None:
    file = SimpleUploadedFile("a.csv", TEXT.encode())
    with immediate() as jobs:
        answer: Any = client.post("/tenants/acme/uploads/", {"file": file, "as_flow": "on"}, follow=True)
        jobs.collect()  # the start waits for a commit
    assert answer.status_code == 200
    upload = Upload.objects.get()
    run = get_run(upload.run)
    assert (run.state, run.row.tenant) == ("completed", "acme")
    assert run.output == {"rows": CHUNKS * ROWS_PER_CHUNK, "faulty": ImportedRow.objects.exclude(fault="").count()}
    attempts = ItemRun.objects.filter(step_run__run=run.id).order_by("index").values_list("output__attempts", flat=True)
    assert list(attempts) == [1, 1, 2, 1], "the chunk that met a busy register was tried again, and no other"
    assert [message.subject for message in mail.outbox] == ["Report: a.csv"]
    page = client.get(f"/tenants/acme/uploads/{upload.pk}/").content.decode()
    assert "Flow import_upload: completed" in page
    assert f"{CHUNKS} of {CHUNKS}" in page


@pytest.mark.django_db
def test_the_page_of_a_run_that_has_not_ended_says_how_far_it_is(client: Client) -> None:
    with recorded():
        upload = receive(tenant="acme", name="a.csv", text=TEXT)
        drain(max_jobs=1)
        page = client.get(f"/tenants/acme/uploads/{upload.pk}/").content.decode()
    assert "Flow import_upload: running" in page
    assert "split_upload" in page
    assert "report" not in page


@pytest.mark.django_db
def test_a_file_of_other_things_is_not_imported(client: Client) -> None:
    with immediate() as jobs:
        upload = receive(tenant="acme", name="a.csv", text=f"{HEADER}\n" + "name,age\n" * 30)
        jobs.collect()
    run = get_run(upload.run)
    assert (run.state, run.row.cause) == ("failed", "validate")
    assert not ImportedRow.objects.exists()
    assert "30 of 30 rows have not 5 fields" in run.row.steps.get(step="validate").error


def test_one_row_is_of_the_busy_customer() -> None:
    busy = [line.startswith(f"{BUSY_CUSTOMER},") for line in csv_rows(TEXT)]
    assert (busy.index(True), busy.count(True)) == (BUSY_CHUNK * ROWS_PER_CHUNK, 1)


GOOD = Flowed(runs=3, completed=3, run_ms=300.0, rows=480, imported=480, retried_attempts=2, reports=3)


def judged(**changes: int) -> Report:
    report = Report(bench="demo", run={})
    values: dict[str, Any] = {name: getattr(GOOD, name) for name in Flowed.__slots__}
    judge(report, Flowed(**(values | changes)))
    return report


def test_its_figures_stand_in_the_report() -> None:
    report = judged()
    assert report.missed == []
    assert report.figures["flow_runs_completed"] == report.figures["flow_reports"] == 3
    assert report.figures["flow_retried_chunk_attempts"] == 2
    assert "  3 runs started, 3 completed, median 300 ms;" in sentences(GOOD)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"completed": 2}, "3 runs of the flow were started and 2 completed."),
        ({"imported": 460}, "The flow was to import 480 rows and imported 460."),
        ({"retried_attempts": 1}, "The chunk of the flow that fails at first took 1 attempts instead of 2."),
        ({"reports": 4}, "3 runs of the flow sent 4 reports."),
    ],
)
def test_each_missed_promise_is_one_plain_sentence(changes: dict[str, int], words: str) -> None:
    assert judged(**changes).missed == [words]
