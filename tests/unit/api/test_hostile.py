"""What a token of one tenant could learn of others by the way: cursors, pages, keys, rows that somebody garbled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import override_settings

from queueapp.api import cursors, urls
from queueapp.api.view import DuctorView
from queueapp.inspection import jobs as inspection
from queueapp.store import connection, shards
from queueapp.store.ids import new_id
from queueapp.store.records import Failed, NewJob
from tests.unit.api import host
from tests.unit.api.host import ADD, end_all, job_in

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]


def cursor_of(answer: dict[str, Any]) -> str:
    found: str = parse_qs(urlsplit(answer["next"]).query)["cursor"][0]
    return found


class TestCursors:
    def test_a_cursor_behind_another_tenant_s_job_does_not_name_it(
        self, opened: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(inspection, "LOOKS", 1)
        monkeypatch.setattr(inspection, "STEPS", 1)
        mine = job_in("completed")
        theirs = job_in("completed", "globex")
        first = ask("GET", "jobs/?state=ended&page_size=1").json()
        assert first["results"] == []
        assert theirs[-22:] not in first["next"]
        assert theirs[-22:] in cursors.opened(cursor_of(first))
        assert [job["id"] for job in ask("GET", first["next"]).json()["results"]] == [mine]

    @pytest.mark.parametrize("path", ["jobs/?state=ended", "dead-letters/?"])
    def test_a_forged_cursor_is_none(self, opened: None, ask: Callable[..., Any], path: str) -> None:
        for _ in range(2):
            job_in("dead" if path.startswith("dead") else "completed")
        real = cursor_of(ask("GET", f"{path}&page_size=1").json())
        assert ask("GET", f"{path}&cursor={real}").status_code == 200
        turned = real[:-2] + ("AA" if real[-2:] != "AA" else "BB")
        place = cursors.opened(real)
        for forged in (turned, real[1:], real[:10], place, "A" * 40, "é", "A"):
            answer = ask("GET", f"{path}&cursor={forged}")
            assert (answer.status_code, list(answer.json())) == (400, ["cursor"])

    def test_a_key_that_was_changed_still_opens(self) -> None:
        with override_settings(SECRET_KEY="old"):
            old = cursors.sealed("place")
        with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["old"]):
            assert cursors.opened(old) == "place"
        for place in ("", "x", "q,main," + "9" * 17 + "," + "x" * 22, "z" * 100):
            assert cursors.opened(cursors.sealed(place)) == place


class TestWhatSomebodyWroteIntoTheStore:
    """A garbled job costs lists nothing, and its own page only what cannot be read."""

    PAYLOADS = (
        b"",
        b"\xff",
        b"null",
        b"[]",
        b'{"a":5}',
        b'{"a":[1],"k":[2],"o":[3]}',
        b"[" * 100_000,
        b'{"a":[' + b"[" * 400 + b"]" * 400 + b"]}",
        b'{"a":[' + b"9" * 5_000 + b"]}",
        b'{"k":{"a":NaN,"b":1e999,"c":"\\ud800","\\udfff":1}}',
        b'{"t":1,"a":[{"$decimal":"1e999999999"},{"$decimal":"sNaN"}]}',
        b'{"t":1,"a":[{"$tuple":null}]}',
        b'{"t":1,"a":[{"$import":"os"}]}',
        b'{"t":1,"k":{"$uuid":"00000000-0000-0000-0000-000000000000"}}',
        b'{"t":1,"a":[{"$datetime":"2030-01-01T00:00:00+00:00[../../etc/passwd]"}]}',
        b'{"o":{"sensitive":5,"metadata":5}}',
        b'{"o":{"sensitive":[5]}}',
    )

    @pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: repr(payload[:30]))
    @pytest.mark.parametrize("task", [ADD, "gone.task"])
    def test_arguments(
        self, opened: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, payload: bytes, task: str
    ) -> None:
        monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)
        job = NewJob(id=new_id(), task=task, tenant="acme", payload=payload, fingerprint="0" * 16)
        shards.store("default").enqueue([job])
        job_id = shards.keys("default").public_id(job.id)
        answer = ask("GET", f"jobs/{job_id}/")
        assert answer.status_code == 200
        json.loads(answer.content.decode(), parse_constant=pytest.fail)
        assert [job["id"] for job in ask("GET", "jobs/").json()["results"]] == [job_id]

    @pytest.mark.parametrize(
        "result", [b"", b"\xff", b"~", b"~[", b'~{"$tuple":5}', b"[" * 100_000, b"NaN", b'"\\ud800"', b"9" * 5_000]
    )
    def test_results(self, opened: None, ask: Callable[..., Any], result: bytes) -> None:
        job_id = job_in("completed")
        connection.commands().set(shards.keys("default")[f"result:{job_id[-22:]}"], result)
        for path in (f"jobs/{job_id}/", f"jobs/{job_id}/result/"):
            answer = ask("GET", path)
            assert answer.status_code == 200
            json.loads(answer.content.decode(), parse_constant=pytest.fail)

    @pytest.mark.parametrize(
        "error",
        [b'{"class":"a.B","message":"\\ud800","traceback":"\\udfff"}', b'{"class":{"x":1}}', b"[" * 100_000, b"5", b""],
    )
    def test_errors(self, opened: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: bytes) -> None:
        monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)
        job_in("pending")
        leased = host.lease()
        shards.store("default").fail([Failed(id=leased.id, attempts=leased.attempts, run_ms=1, error=error)])
        job_id = shards.keys("default").public_id(leased.id)
        assert [letter["id"] for letter in ask("GET", "dead-letters/").json()["results"]] == [job_id]
        assert ask("GET", f"dead-letters/{job_id}/").status_code == 200

    @pytest.mark.dirty_store
    @pytest.mark.parametrize("row", [b"", b"x", b"\xff\n", b"p1|1|acme\n", b"p1x|1|acme|||||||\n{}"])
    def test_a_row_that_is_none_hides_no_other(self, opened: None, ask: Callable[..., Any], row: bytes) -> None:
        garbled, other = job_in("pending"), job_in("pending")
        connection.commands().set(shards.keys("default").job(garbled[-22:]), row)
        assert [job["id"] for job in ask("GET", "jobs/").json()["results"]] == [other]
        answer = ask("GET", f"jobs/{garbled}/")
        assert answer.status_code in (404, 503)
        assert garbled[-22:] not in answer.content.decode()
        assert ask("POST", "dead-letters/retry/", body={"ids": [garbled]}).status_code == 200


def test_a_wrong_token_and_a_wrong_page_say_the_same_of_what_is_another_s(
    opened: None, ask: Callable[..., Any]
) -> None:
    """A list with conditions that only another tenant's jobs meet is that of conditions that nothing meets."""
    job_in("pending", "globex")
    end_all(dead=True)
    [group] = [entry.group for entry in shards.reads("default").dead_groups(offset=0, count=1)[0]]
    for one, other in (
        (f"dead-letters/?group={group}", "dead-letters/?group=000000000000"),
        ("dead-letters/?reason=error", "dead-letters/?reason=none"),
        (f"jobs/?state=dead&task={ADD}", "jobs/?state=dead&task=x.y"),
    ):
        assert ask("GET", one).json() == ask("GET", other).json() == {"next": None, "results": []}


ODD = (
    *(
        "%00",
        "a%00b",
        "%ff",
        "%C3%A9",
        "%0a",
        "%0d%0aX:1",
        "%E2%80%AE",
        "%25",
        "%2e%2e",
        "*",
        "{x}",
        "_",
        "-1",
        "+1",
        "1.5",
    ),
    *("\u0663", "\U0001d7d8", "9" * 400, "a" * 9_000, "default%0a", "acme%0a", "abcdef.-1." + "0" * 22),
    *("abcdef.0." + "0" * 22 + "%00", "abcdef.0.%0a" + "0" * 21, "abcdef." + "9" * 30 + "." + "0" * 22),
)


@pytest.mark.parametrize("name", [name for name, (route, _) in urls.ROUTES.items() if "<" in route])
def test_whatever_stands_in_an_address_is_not_found(
    opened: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """And never a 403, which would say that there is something."""
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)
    route, view = urls.ROUTES[name]
    for odd in ODD:
        path = re.sub(r"<str:\w+>", odd, route)
        for method in ("GET", "POST"):
            if hasattr(view, method.lower()):
                answer = ask(method, path)
                assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (method, path[:60])


@pytest.mark.parametrize("path", ["jobs/cancel-matching/", "dead-letters/retry-matching/", "jobs/?state=ended"])
@pytest.mark.parametrize("place", ["zzz", "9999999999999 0 zzz", "1 1 dead", "", "é", "9.9", "q,main,1,x"])
def test_a_sealed_place_of_another_list_opens_none(
    opened: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, path: str, place: str
) -> None:
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)
    job_in("dead")
    cursor = cursors.sealed(place)
    answer = ask("GET", f"{path}&cursor={cursor}") if "?" in path else ask("POST", path, body={"cursor": cursor})
    assert answer.status_code == 400 or answer.json() == {"next": None, "results": []}, answer.content
