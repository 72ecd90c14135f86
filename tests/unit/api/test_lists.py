"""Lists: bounded work, pages of a bounded size, an order that holds, nothing of other tenants or hidden tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection as database
from django.test.utils import CaptureQueriesContext
from redis.connection import AbstractConnection

import queueapp
from queueapp.api.cursors import sealed
from queueapp.api.requests import PAGE_MAX, PAGE_SIZE
from queueapp.inspection import bulk
from queueapp.store import connection, shards
from queueapp.store.ids import new_id
from queueapp.store.records import NewJob
from tests.unit.api import host
from tests.unit.api.host import ADD, HIDDEN, end_all, job_in, run

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

LISTS = ("jobs/?state=pending", "jobs/?state=scheduled", "jobs/?state=active", "jobs/?state=ended", "jobs/?state=dead")


def many(count: int, *, tenants: str = "acme", task: str = ADD, due_ms: int = 0) -> list[str]:
    """New jobs, of the tenants in turn; their inner ids."""
    names = tenants.split(",")
    store, made = shards.store("default"), []
    for first in range(0, count, 1000):
        jobs = [
            NewJob(
                id=new_id(),
                task=task,
                tenant=names[number % len(names)],
                payload=b'{"a":[1]}',
                fingerprint="f" * 16,
                due_ms=due_ms,
            )
            for number in range(first, min(count, first + 1000))
        ]
        made += [answer.id for answer in store.enqueue(jobs)]
    return made


def pages(ask: Callable[..., Any], path: str, *, tenants: str = "acme", most: int = 1000) -> Iterator[list[Any]]:
    """The pages of a list, by following `next`."""
    url: str | None = path
    for _ in range(most):
        if url is None:
            return
        answer = ask("GET", url, tenants=tenants)
        assert answer.status_code == 200, answer.content
        url = answer.json()["next"]
        yield answer.json()["results"]
    raise AssertionError("the list does not end")


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Counts the round trips to the store: one for each time that something is sent."""
    sent = [0]
    send: Any = AbstractConnection.send_packed_command

    def send_counted(self: Any, command: Any, check_health: bool = True) -> Any:
        sent[0] += 1
        return send(self, command, check_health)

    with monkeypatch.context() as patch:
        patch.setattr(AbstractConnection, "send_packed_command", send_counted)
        yield sent


@pytest.fixture
def warm(opened: None, ask: Callable[..., Any]) -> None:
    """Connections are there, and what is remembered is."""
    many(1)
    ask("GET", "jobs/")


@pytest.mark.parametrize("path", [*LISTS, "dead-letters/", "jobs/?state=ended&task=no.such", "dead-letters/?reason=x"])
def test_c154_a_page_costs_the_same_however_much_there_is(
    warm: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """One tenant's part of a history that is mostly others': first page, next page, an order with many ties."""
    dead = "dead" in path or "reason" in path
    costs = []
    for count in (300, 1_500):
        many(count, tenants="acme,globex,initech", due_ms=2**42 if "scheduled" in path else 0)
        if "ended" in path or dead:
            end_all(dead=dead)
        for size in ("5", "1000000000"):
            separator = "&" if "?" in path else "?"
            with counted(monkeypatch) as sent, CaptureQueriesContext(database) as queries:
                answer = ask("GET", f"{path}{separator}page_size={size}")
            assert answer.status_code == 200
            said = answer.json()
            assert len(said["results"]) <= PAGE_MAX
            assert {job["tenant"] for job in said["results"]} <= {"acme"}
            assert len(queries) <= 5
            costs.append(sent[0])
            if said["next"]:
                with counted(monkeypatch) as sent:
                    assert ask("GET", said["next"]).status_code == 200
                costs.append(sent[0])
    assert max(costs) <= 10, costs


@pytest.mark.parametrize(("path", "tenants"), [(path, who) for path in LISTS for who in ("acme", "ALL")])
def test_c154_every_job_stands_on_one_page_in_one_order(
    opened: None, ask: Callable[..., Any], path: str, tenants: str
) -> None:
    """All of one moment: the order among equals must not change from page to page."""
    count = 60
    state = path.partition("=")[2]
    made = many(count, due_ms=2**42 if state == "scheduled" else 0)
    if state in ("ended", "dead"):
        end_all(dead=state == "dead")
    if state == "active":
        shards.store("default").check_and_lease("w1", 1, want=count, begin=0, lease_ms=30_000)
    ids = [f"{shards.keys('default').public_id('')}{job_id}" for job_id in made]
    listed = [[job["id"] for job in page] for page in pages(ask, f"{path}&page_size=7", tenants=tenants)]
    assert all(len(page) <= 7 for page in listed)
    flat = [job_id for page in listed for job_id in page]
    assert sorted(flat) == sorted(ids)
    whole = [job["id"] for page in pages(ask, f"{path}&page_size=100", tenants=tenants) for job in page]
    assert whole == flat


def test_c154_dead_letters_page_by_page_while_some_leave_and_others_come(opened: None, ask: Callable[..., Any]) -> None:
    many(30)
    end_all(dead=True)
    first = ask("GET", "dead-letters/?page_size=10").json()
    many(5)
    end_all(dead=True)
    rest = [job["id"] for page in pages(ask, first["next"]) for job in page]
    assert len(rest) == 20
    assert not set(rest) & {job["id"] for job in first["results"]}


@pytest.mark.parametrize("path", ["jobs/", "dead-letters/", "pools/", "tenants/"])
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("page_size=0", "page_size"),
        ("page_size=-1", "page_size"),
        ("page_size=many", "page_size"),
        ("page_size=1e9", "page_size"),
        ("page_size=1_0", "page_size"),
        ("page_size=5.0", "page_size"),
        ("page_size=%2B5", "page_size"),
        ("page_size=%D9%A3", "page_size"),
        ("page_size=" + "9" * 5_000, "page_size"),
        ("page_size=", "page_size"),
        ("page_size=1&page_size=2", "page_size"),
        ("tenat=acme", "tenat"),
        ("format=xml", "format"),
        ("cursor=", "cursor"),
        ("cursor=" + "x" * 500, "cursor"),
        ("cursor=%00", "cursor"),
    ],
)
def test_a_wrong_parameter_is_named(opened: None, ask: Callable[..., Any], path: str, query: str, field: str) -> None:
    answer = ask("GET", f"{path}?{query}")
    assert (answer.status_code, list(answer.json())) == (400, [field])


@pytest.mark.parametrize("state", ["pending", "scheduled", "active", "ended", "dead"])
@pytest.mark.parametrize("cursor", ["x", "1,2,3,4", "9" * 40 + ",x", "-,x", ",", "é", "1e400,x", "nan,x", "1|x"])
@pytest.mark.parametrize("tenants", ["acme", "ALL"])
def test_a_cursor_that_no_page_gave(
    opened: None, ask: Callable[..., Any], state: str, cursor: str, tenants: str
) -> None:
    assert ask("GET", f"jobs/?state={state}&cursor={cursor}", tenants=tenants).status_code == 400
    answer = ask("GET", f"jobs/?state={state}&cursor={sealed(cursor)}", tenants=tenants)
    assert answer.status_code in (200, 400), answer.content
    if answer.status_code == 400:
        assert list(answer.json()) == ["cursor"]


@pytest.mark.parametrize("cursor", ["x", "1", "1.2.3", "1.", ".1", "-1.5", "9" * 40 + ".1"])
def test_a_cursor_of_dead_letters_that_no_page_gave(opened: None, ask: Callable[..., Any], cursor: str) -> None:
    for given in (cursor, sealed(cursor)):
        answer = ask("GET", f"dead-letters/?cursor={given}")
        assert (answer.status_code, list(answer.json())) == (400, ["cursor"])


def test_a_cursor_of_dead_letters_beyond_their_end(opened: None, ask: Callable[..., Any]) -> None:
    job_in("dead")
    for cursor in ("9" * 16 + "." + "9" * 16, "0.9999999999999999", "1.0"):
        assert ask("GET", f"dead-letters/?cursor={sealed(cursor)}").json() == {"next": None, "results": []}


@pytest.mark.parametrize(
    ("query", "field"), [("state=done", "state"), ("state=completed", "state"), ("pool=nowhere", "pool")]
)
def test_a_wrong_filter_is_named(opened: None, ask: Callable[..., Any], query: str, field: str) -> None:
    answer = ask("GET", f"jobs/?{query}")
    assert (answer.status_code, list(answer.json())) == (400, [field])


def test_sizes(opened: None, ask: Callable[..., Any]) -> None:
    many(PAGE_MAX + 1)
    sizes = {
        size: len(ask("GET", f"jobs/?{size}").json()["results"])
        for size in ("", "page_size=1", f"page_size={PAGE_MAX}", f"page_size={PAGE_MAX + 1}", "page_size=1000000000")
    }
    assert list(sizes.values()) == [PAGE_SIZE, 1, PAGE_MAX, PAGE_MAX, PAGE_MAX]


@pytest.mark.parametrize("path", [*LISTS, "dead-letters/"])
def test_only_one_s_own_and_only_what_is_for_the_api(opened: None, ask: Callable[..., Any], path: str) -> None:
    state = "dead" if path == "dead-letters/" else path.partition("=")[2]
    making = {"ended": "completed"}.get(state, state)
    others = [job_in(making, "globex"), job_in(making, task=host.hidden)] if making != "active" else []
    mine = job_in(making)
    listed = [job["id"] for page in pages(ask, path) for job in page]
    assert listed == [mine]
    everybody = [job["id"] for page in pages(ask, path, tenants="ALL") for job in page]
    assert sorted(everybody) == sorted([mine, *others[:1]])
    both = "&" if "?" in path else "?"
    named = [job["id"] for page in pages(ask, f"{path}{both}tenant=acme", tenants="acme,globex") for job in page]
    assert named == [mine]
    assert ask("GET", path, tenants="acme,globex").status_code == 400
    assert ask("GET", f"{path}{both}tenant=globex").status_code == 404
    assert ask("GET", path, tenants="").json()["code"] == "no_tenant"


def test_jobs_of_a_task(opened: None, ask: Callable[..., Any]) -> None:
    wanted = job_in("pending", task=host.anything.using(lane="other"))
    many(5)
    for tenants in ("acme", "ALL"):
        listed = [
            job["id"] for page in pages(ask, f"jobs/?task={host.__name__}.anything", tenants=tenants) for job in page
        ]
        assert listed == [wanted]
    assert [page for page in pages(ask, f"jobs/?task={HIDDEN}") if page] == []


@pytest.mark.parametrize("path", ["jobs/?state=pending&", "jobs/?state=dead&", "dead-letters/?"])
def test_the_name_of_a_hidden_task_is_no_filter_that_tells(opened: None, ask: Callable[..., Any], path: str) -> None:
    """Pages of nothing that go on would say that there are such jobs."""
    many(3, task=HIDDEN)
    if "pending" not in path:
        end_all(dead=True)
    answer = ask("GET", f"{path}task={HIDDEN}&page_size=1")
    assert answer.json() == {"next": None, "results": []}


def test_dead_letters_by_tenant_task_reason_and_group(opened: None, ask: Callable[..., Any]) -> None:
    failed = job_in("dead")
    moved = job_in("pending")
    shards.store("default").move_to_dlq([moved.rpartition(".")[2]], "set_aside")
    theirs = job_in("dead", "globex")
    group = ask("GET", f"dead-letters/{failed}/").json()["group"]
    assert group == "abcdef012345"

    def listed(query: str, tenants: str = "acme") -> list[str]:
        return [job["id"] for page in pages(ask, f"dead-letters/?{query}", tenants=tenants) for job in page]

    assert listed("") == [moved, failed]
    assert listed("reason=set_aside") == [moved]
    assert listed("reason=error") == [failed]
    assert listed(f"group={group}") == [failed]
    assert listed(f"group={group}", "ALL") == [theirs, failed]
    assert listed(f"task={ADD}&reason=error&group={group}&tenant=globex", "ALL") == [theirs]
    assert listed(f"task={host.__name__}.with_context") == []
    bulk.retry_many([failed])
    assert listed("") == [moved]
    assert ask("GET", f"dead-letters/{failed}/").status_code == 404
    assert ask("GET", f"dead-letters/{moved}/").json()["reason"] == "set_aside"


def test_the_address_of_a_page_keeps_its_filters(opened: None, ask: Callable[..., Any]) -> None:
    many(3)
    following = ask("GET", f"jobs/?task={ADD}&page_size=2").json()["next"]
    assert following.startswith("http://testserver/api/jobs/?")
    assert f"task={ADD}" in following
    deep = ask("GET", "/north/deep/jobs/?page_size=2").json()
    assert deep["next"].startswith("http://testserver/north/deep/jobs/?")
    assert deep["results"][0]["url"].startswith("http://testserver/north/deep/jobs/")
    assert ask("GET", deep["results"][0]["url"]).status_code == 200


def test_lists_without_the_store_are_503(
    ask: Callable[..., Any], opened: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Any:
        raise queueapp.errors.StoreUnavailable("at 10.0.0.1")

    monkeypatch.setattr(connection, "reads", away)
    for path in ("jobs/", "dead-letters/", "tenants/", "pools/default/", "tenants/acme/"):
        answer = ask("GET", path)
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable"), path
        assert b"10.0.0.1" not in answer.content
    assert ask("GET", "pools/").status_code == 200


def test_a_run_job_is_listed_without_its_contents(opened: None, ask: Callable[..., Any], signed_in: Any) -> None:
    signed_in("view_payload")
    job_in("pending")
    run({"big": "x" * 1000})
    [job] = ask("GET", "jobs/?state=ended").json()["results"]
    assert not {"result", "arguments", "errors", "progress", "metadata"} & set(job)
