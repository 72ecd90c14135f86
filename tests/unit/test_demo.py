"""The host app of the demonstration: an upload becomes jobs, a job imports its chunk once, however often it runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core import mail
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from ductor_project.demo.checking import check, iban_holds, on_watch_list
from ductor_project.demo.models import ROWS_PER_CHUNK, ImportChunk, ImportedRow, Upload, csv_rows
from ductor_project.demo.show.figures import Import, Sums, figures
from ductor_project.demo.show.judging import judge
from ductor_project.demo.show.load import BIG, SHARES, SMALL, File, csv_text, plan
from ductor_project.demo.show.site import multipart
from ductor_project.demo.tasks import import_chunk, send_summary
from queueapp import tenant
from queueapp.bench.harness import Report
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.producing import run_waiting

TEXT = csv_text(File(at_s=0, tenant="acme", name="a.csv", chunks=3))
UPLOADS = "/tenants/acme/uploads/"


def post(client: Client, text: str = TEXT) -> HttpResponse:
    file = SimpleUploadedFile("a.csv", text.encode())
    return client.post(UPLOADS, {"file": file})  # type: ignore[return-value]  # the stubs have other answers of the test client


# -- from the view over the signal to the job --------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_an_upload_over_http_enqueues_a_job_per_chunk_of_its_tenant(client: Client, store: Store, reads: Reads) -> None:
    answer = post(client)
    assert answer.status_code == 302
    upload = Upload.objects.get()
    assert (upload.tenant, upload.row_count) == ("acme", 3 * ROWS_PER_CHUNK)
    overview = reads.overview()
    assert overview.tenants == {"acme": 3}
    waiting = [job_id for _, _, job_id in store.peek(10)]
    assert [record.task for record in reads.jobs(waiting) if record] == [import_chunk.module_path] * 3


@pytest.mark.django_db(transaction=True)
def test_all_jobs_done_every_row_is_there_and_one_summary_went_out(client: Client, store: Store, reads: Reads) -> None:
    post(client)
    assert run_waiting(store) == 4  # three chunks and the summary
    assert ImportedRow.objects.filter(tenant="acme").count() == 3 * ROWS_PER_CHUNK
    assert [message.subject for message in mail.outbox] == ["Imported: a.csv"]
    assert reads.overview().stats["completed"] == 4


@pytest.mark.django_db(transaction=True)
def test_without_the_token_of_the_form_nothing_is_uploaded(store: Store, reads: Reads) -> None:
    assert post(Client(enforce_csrf_checks=True)).status_code == 403
    assert Upload.objects.count() == 0
    assert reads.overview().waiting == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("text", "words"),
    [("", "empty"), ("name,age\nx,1\n", "first line"), ("customer,email,iban,amount,booked\n", "no rows")],
)
def test_a_file_that_is_none_of_ours_is_refused_whole(
    client: Client, store: Store, reads: Reads, text: str, words: str
) -> None:
    answer = post(client, text)
    assert answer.status_code == 400
    assert words in answer.content.decode()
    assert reads.overview().waiting == 0


@pytest.mark.django_db(transaction=True)
def test_a_view_enqueues_the_summary_again(client: Client, store: Store, reads: Reads) -> None:
    post(client)
    run_waiting(store)
    upload = Upload.objects.get()
    assert client.get(reverse("demo:upload", args=["acme", upload.pk])).status_code == 200
    answer = client.post(reverse("demo:summary", args=["acme", upload.pk]), follow=True)
    assert "is on its way" in answer.content.decode()
    assert reads.overview().tenants == {"acme": 1}
    assert client.get("/").status_code == 200
    assert client.get(UPLOADS).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_fixture_is_no_upload(store: Store, reads: Reads) -> None:
    upload = Upload.objects.create(tenant="acme", name="a", row_count=1)
    chunk = ImportChunk(upload=upload, number=0, text="x")
    chunk.save_base(raw=True)
    assert reads.overview().waiting == 0


# -- a job that runs twice ---------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_an_import_that_runs_twice_records_nothing_twice(client: Client, store: Store, reads: Reads) -> None:
    post(client)
    run_waiting(store)
    before = list(ImportedRow.objects.order_by("pk").values())
    for chunk in ImportChunk.objects.all():
        with tenant("acme"):  # as the worker does
            import_chunk.call(chunk.pk)
    assert list(ImportedRow.objects.order_by("pk").values()) == before
    assert run_waiting(store) == 0  # the summary's key stands for the one that was sent
    assert len(mail.outbox) == 1


@pytest.mark.django_db(transaction=True)
def test_a_run_that_died_half_way_is_completed_by_the_next(client: Client, store: Store) -> None:
    post(client)
    chunk = ImportChunk.objects.order_by("pk").first()
    assert chunk is not None
    import_chunk.call(chunk.pk)
    ImportedRow.objects.filter(chunk=chunk, line__gte=5).delete()
    import_chunk.call(chunk.pk)
    assert sorted(chunk.rows.values_list("line", flat=True)) == list(range(ROWS_PER_CHUNK))
    run_waiting(store)


@pytest.mark.django_db(transaction=True)
def test_the_summary_names_faulty_rows(store: Store) -> None:
    upload = Upload.receive(
        tenant="acme", name="b.csv", text="customer,email,iban,amount,booked\nX,y,z,1,2026-01-01\n", pool="default"
    )
    run_waiting(store)
    send_summary.call(upload.pk)
    assert "chunk 0, line 0: no e-mail address; no valid IBAN" in mail.outbox[-1].body


# -- the pure parts ----------------------------------------------------------------------------------------------


def test_checking_tells_what_is_wrong_with_a_row() -> None:
    good, bad, watched = check(
        "Ada Costa,ada@example.com,DE89370400440532013000,12.5,2026-02-28\n"
        "Ada Costa,nobody,DE00370400440532013000,many,2026-02-30\n"
        "Anselm Abernathy,a@example.com,DE89370400440532013000,1,2026-02-28\n"
    )
    assert good.fault == ""
    assert bad.fault == "no e-mail address; no valid IBAN; no amount; no date"
    assert watched.fault == "looks like Anselm Abernathy of the watch list"
    assert check("one field")[0].fault.startswith("1 fields instead of 5")


def test_names_are_alike_whatever_their_accents_and_case() -> None:
    assert on_watch_list("ANSELM  Ábernathy") == "Anselm Abernathy"
    assert on_watch_list("Ada Costa") is None


def test_ibans() -> None:
    assert iban_holds("GB29 NWBK 6016 1331 9268 19")
    assert not iban_holds("GB28 NWBK 6016 1331 9268 19")
    assert not iban_holds("")


def test_the_load_is_the_same_each_time_and_mostly_good() -> None:
    file = File(at_s=0, tenant="acme", name="a.csv", chunks=10)
    assert csv_text(file) == csv_text(file)
    rows = check("\n".join(csv_rows(csv_text(file))))
    assert len(rows) == 10 * ROWS_PER_CHUNK
    assert 0 < sum(row.fault != "" for row in rows) < 20


@pytest.mark.parametrize("jobs", [250, 600, 1_234, 5_000])
def test_the_plan_begins_with_the_flood_and_has_the_shares(jobs: int) -> None:
    files = plan(jobs, 8.0)
    assert [file.at_s for file in files] == sorted(file.at_s for file in files)
    assert files[0].tenant == files[-1].tenant == BIG
    first_small = min(file.at_s for file in files if file.tenant in SMALL)
    flood = sum(file.chunks for file in files if file.at_s < first_small)
    assert flood > 2 * jobs * first_small / 8.0, "big's jobs must wait before anybody else comes"
    for name, share in SHARES.items():
        chunks = sum(file.chunks for file in files if file.tenant == name)
        assert chunks == pytest.approx(jobs * share / 100, abs=5)


SUMS = Sums(enqueued=10, completed=10, dead=0, lost=0, recorded_twice=0, lost_leases=2)


def imports(wait: Callable[[str], float], latency: float) -> list[Import]:
    return [
        Import(
            tenant=name,
            chunk=number,
            enqueued_ms=1000,
            started_ms=1000 + wait(name),
            ended_ms=1000 + latency,
            ran_ms=8,
            database_ms=2,
        )
        for number, name in enumerate(list(SHARES) * 20)
    ]


def judged(small_wait: float, big_latency: float, sums: Sums = SUMS) -> Report:
    fifo = figures([imports(lambda name: 5_000, 6_000)], sums)
    tiered = figures([imports(lambda name: 5_000 if name == BIG else small_wait, big_latency)], sums)
    report = Report(bench="demo", run={})
    judge(report, {"fifo": fifo, "tiered": tiered})
    return report


def test_the_verdict_is_good_when_every_promise_is_kept() -> None:
    report = judged(small_wait=200, big_latency=6_300)
    assert report.missed == []
    assert report.figures["small_p95_ratio"] == 25
    assert report.figures["big_p95_ratio"] == pytest.approx(1.05)
    assert report.figures["enqueued"] == 20
    assert report.figures["fifo_database_share"] == 0.25


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (lambda: judged(1_001, 6_000), "The small tenants' p95 wait is 5.0 times lower under tiered"),
        (lambda: judged(100, 7_000), "The big tenant's p95 latency under tiered is 1.17 times"),
        (lambda: judged(100, 6_000, _sums(lost=3)), "6 jobs were lost."),
        (lambda: judged(100, 6_000, _sums(recorded_twice=1)), "2 outcomes or rows were recorded twice."),
        (lambda: judged(100, 6_000, _sums(completed=9)), "20 jobs were enqueued and 18 completed."),
    ],
)
def test_each_missed_promise_is_one_plain_sentence(report: Callable[[], Report], words: str) -> None:
    [sentence] = report().missed
    assert sentence.startswith(words)


def _sums(**changes: int) -> Sums:
    values = {"enqueued": 10, "completed": 10, "dead": 0, "lost": 0, "recorded_twice": 0, "lost_leases": 2}
    return Sums(**(values | changes))


def test_a_form_as_a_browser_sends_it() -> None:
    kind, body = multipart({"pool": "default"}, "a.csv", "x")
    boundary = kind.removeprefix("multipart/form-data; boundary=").encode()
    assert body.startswith(b"--" + boundary)
    assert body.endswith(b"--" + boundary + b"--\r\n")
    assert b'name="file"; filename="a.csv"' in body
