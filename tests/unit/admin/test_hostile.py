"""What people with some rights could get out of the admin, and what somebody who writes into the store can do to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from queueapp.inspection import bulk
from queueapp.models import DeadLetterInspection, OutboxEntry
from queueapp.store import connection, shards
from queueapp.store.ids import new_id
from queueapp.store.records import Failed, NewJob
from tests.unit.admin.conftest import SECRET, Login, enqueue, fail, keep, lease, public

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

OUTBOX = "/admin/queueapp/outboxentry/"
DEAD = "/admin/queueapp/deadletters/"
SCRIPT = "<script>alert(1)</script>{{ 7|add:7 }}{% now %}"


def page_of(job_id: str) -> str:
    return reverse("admin:queueapp_jobs_change", args=[job_id.replace("_", "_5F")])


def exported(client: Client) -> str:
    """All dead letters as the admin gives them away."""
    answer: Any = client.post(f"{DEAD}export/", {"scope": "all"})
    assert answer["Content-Type"] == "application/jsonl"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "attachment" in answer["Content-Disposition"]
    return b"".join(answer.streaming_content).decode()


class TestGuessing:
    @pytest.mark.parametrize(
        "question",
        [f"payload__regex={SECRET}", "payload__contains=x", "payload=x", "job__x=1", "job__isnull=0", "claim="],
    )
    def test_an_address_cannot_ask_about_arguments(self, login: Login, question: str) -> None:
        keep()
        for client in (login("view_outboxentry"), login("view_outboxentry", "view_operations", "operate_job")):
            assert client.get(f"{OUTBOX}?{question}").status_code == 400
            assert client.post(f"{OUTBOX}?{question}", {"action": "try_again"}).status_code == 400

    def test_what_is_shown_can_be_asked_for(self, login: Login) -> None:
        keep(tenant="acme")
        client = login("view_outboxentry")
        for question, count in (("state__exact=waiting", 1), ("tenant=acme", 1), ("tenant__startswith=x", 0)):
            answer = client.get(f"{OUTBOX}?{question}")
            assert (answer.status_code, answer.content.count(b"field-short_id")) == (200, count)

    def test_every_field_is_shown_or_out_of_reach(self) -> None:
        """A new field of a row is out of reach of addresses until it is shown."""
        from django.contrib.admin import site

        outbox = site._registry[OutboxEntry]
        fields = {field.name for field in OutboxEntry._meta.get_fields()}
        allowed = {name for name in fields if outbox.lookup_allowed(name, "x", None)}  # type: ignore[arg-type]  # as much of it as is asked here
        assert allowed == fields - {"id", "payload", "job", "claim"}


class TestGarbled:
    """One job that somebody garbled costs no page."""

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"\xff",
            b"null",
            b'{"a":5}',
            b"[" * 100_000,
            b'{"a":[' + b"[" * 400 + b"]" * 400 + b"]}",
            b'{"a":["\\ud800"]}',
        ],
        ids=lambda payload: repr(payload[:20]),
    )
    def test_arguments(self, login: Login, payload: bytes) -> None:
        client = login("view_operations", "view_payload", "view_outboxentry")
        job = NewJob(id=new_id(), task="shop.send", tenant="acme", payload=payload, fingerprint="0" * 16)
        shards.store("default").enqueue([job])
        assert client.get(page_of(public([job.id])[0])).status_code == 200
        assert client.get(f"{OUTBOX}{keep(payload=payload).pk}/change/").status_code == 200

    @pytest.mark.parametrize(
        "error",
        [
            '{"class":"a.B","message":"\\ud800","traceback":"\\udfff"}',
            '{"class":"\\ud800"}',
            '{"class":"a\\u0000b"}',
            '{"class":{"a":1},"message":[1]}',
            "[" * 100_000,
            "9" * 5_000,
        ],
        ids=lambda error: error[:30],
    )
    def test_errors(self, login: Login, error: str) -> None:
        """An exception may quote the name of a file that is not UTF-8."""
        client = login("view_operations", "view_payload", "discard_job")
        enqueue()
        [(inner, attempts)] = lease()
        failed = Failed(id=inner, attempts=attempts, run_ms=1, error=error.encode(), fingerprint="a" * 12)
        shards.store("default").fail([failed])
        [job_id] = public([inner])
        for address in (page_of(job_id), DEAD, f"{DEAD}groups/", "/admin/queueapp/jobs/?state=dead"):
            assert client.get(address).status_code == 200
        assert [json.loads(line)["id"] for line in exported(client).splitlines()] == [job_id]
        assert client.post(f"{DEAD}discard/", {"ids": job_id, "confirmed": "yes"}).status_code == 302
        row = DeadLetterInspection.objects.get(action="discarded")
        assert "\0" not in row.error

    @pytest.mark.dirty_store
    @pytest.mark.parametrize("key", ["job", "result", "run", "errors", "data"])
    def test_a_row_that_is_none(self, login: Login, key: str) -> None:
        client = login("view_operations", "view_payload")
        garbled, other = enqueue(2)
        name = shards.keys("default")[f"{key}:{garbled}"]
        if key == "job":
            connection.commands().set(name, b"x")
        else:
            connection.commands().sadd(name, b"another type")
        listed = client.get("/admin/queueapp/jobs/?state=pending&tenant=acme").content.decode()
        assert public([other])[0] in listed
        answer = client.get(page_of(public([garbled])[0]))
        assert answer.status_code == 200
        assert "cannot be read by this release" in answer.content.decode()


class TestTheRecord:
    """PostgreSQL keeps no NUL: with one, what was done would not be written down."""

    def test_a_nul_in_a_note_costs_no_record(self, login: Login) -> None:
        client = login("view_operations", "operate_job", "discard_job")
        job_id, other = fail(2)
        client.post(f"{page_of(job_id)}note/", {"note": "look\0here"})
        client.post(f"{DEAD}discard/", {"ids": job_id, "confirmed": "yes", "note": "a\0b"})
        client.post(f"{DEAD}discard/", {"ids": f"x\0y {other}", "confirmed": "yes", "note": "\0"})
        client.post(f"{DEAD}discard/", {"ids": "x\0y", "confirmed": "yes"})
        assert set(DeadLetterInspection.objects.values_list("job_id", "action", "note")) == {
            (job_id, "noted", "lookhere"),
            (job_id, "discarded", "ab"),
            (other, "discarded", ""),
        }
        entries = LogEntry.objects.values_list("object_id", "object_repr", "change_message")
        assert len(entries) == 4
        assert not any("\0" in (text or "") for entry in entries for text in entry)

    def test_so_for_every_skin(self) -> None:
        [job_id] = fail()
        bulk.discard_many([job_id], by="a\0", note="\0\ud800")
        row = DeadLetterInspection.objects.get()
        assert (row.by, row.note) == ("a", "\\ud800")

    def test_an_id_with_a_nul_is_nobody_s(self, login: Login) -> None:
        client = login("view_operations", "view_deadletterinspection")
        assert client.get("/admin/queueapp/jobs/x%00y/").status_code == 404


class TestNext:
    @pytest.mark.parametrize(
        "wanted",
        [
            "https://evil.example/",
            "//evil.example/",
            "/\\evil.example/",
            "\\\\evil.example",
            "javascript:alert(1)",
            "http:///evil.example",
            "https:evil.example",
            "\t//evil.example",
            "http://testserver@evil.example/",
        ],
    )
    def test_leads_nowhere_else(self, login: Login, wanted: str) -> None:
        client = login("view_operations", "operate_job")
        fields = {"ids": fail(), "next": wanted}
        asked = client.post(f"{DEAD}retry/", fields).content.decode()
        assert "evil" not in asked
        assert "javascript:" not in asked
        assert client.post(f"{DEAD}retry/", {**fields, "confirmed": "yes"})["Location"].startswith(DEAD)

    def test_leads_from_https_to_https_alone(self, login: Login) -> None:
        client = login("view_operations", "operate_job")
        fields = {"ids": fail(), "confirmed": "yes", "next": "http://testserver/elsewhere/"}
        assert client.post(f"{DEAD}retry/", fields, secure=True)["Location"].startswith(DEAD)


def test_names_and_messages_are_text_on_every_page(login: Login) -> None:
    """Task, class, message and arguments come from outside; so does what a request says."""
    payload = json.dumps({"a": [SCRIPT], "k": {SCRIPT: SCRIPT}}).encode()
    job = NewJob(id=new_id(), task=SCRIPT, tenant="acme", payload=payload, fingerprint="0" * 16)
    shards.store("default").enqueue([job])
    [(inner, attempts)] = lease()
    error = json.dumps({"class": SCRIPT, "message": SCRIPT, "traceback": SCRIPT}).encode()
    shards.store("default").fail([Failed(id=inner, attempts=attempts, run_ms=1, error=error, fingerprint="a" * 12)])
    [job_id] = public([inner])
    client: Client = login(
        "view_operations", "view_payload", "operate_job", "discard_job", "view_outboxentry", "view_deadletterinspection"
    )
    client.post(f"{page_of(job_id)}note/", {"note": SCRIPT})
    entry = keep(task=SCRIPT, error=SCRIPT, payload=payload)
    asked = {"tenant": SCRIPT, "task": SCRIPT, "reason": SCRIPT, "group": SCRIPT, "cursor": SCRIPT, "state": SCRIPT}
    form = {name: value for name, value in asked.items() if name != "cursor"}
    addresses = [page_of(job_id), DEAD, f"{DEAD}groups/", OUTBOX, f"{OUTBOX}{entry.pk}/change/"]
    addresses += [
        "/admin/queueapp/deadletterinspection/",
        "/admin/queueapp/jobs/?state=dead",
        page_of(SCRIPT.replace("/", "")),
    ]
    answers = [client.get(address) for address in addresses]
    answers += [client.get(address, asked) for address in (DEAD, "/admin/queueapp/jobs/")]
    answers += [client.post(f"{DEAD}{verb}/", {**form, "ids": SCRIPT, "note": SCRIPT}) for verb in ("retry", "discard")]
    for answer in answers:
        text = answer.content.decode()
        assert answer.status_code in (200, 404)
        assert "<script>alert" not in text
        assert "{{ 14" not in text
    assert sum("&lt;script&gt;" in answer.content.decode() for answer in answers) >= 9
    [letter] = [json.loads(line) for line in exported(client).splitlines()]
    assert letter["task"] == SCRIPT
