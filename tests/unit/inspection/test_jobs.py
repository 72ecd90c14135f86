"""Lists of jobs by state: each once, in a stable order, bounded; and what a job tells of its times."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from queueapp.codec import digest
from queueapp.errors import InvalidOption
from queueapp.inspection.jobs import MAX_COUNT, MAX_NEXT, STATES, JobPage, JobView, find_job, list_jobs
from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.states import Outcome, State
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import KeyUse
from queueapp.store.views import ErrorRecord, JobRecord
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db

MOST_ROUND_TRIPS = 8


def every_page(state: str, *, count: int = 3, **conditions: str) -> list[JobPage]:
    pages = [list_jobs("default", state, count=count, **conditions)]
    while pages[-1].next_cursor is not None:
        pages.append(list_jobs("default", state, count=count, cursor=pages[-1].next_cursor, **conditions))
    return pages


def all_ids(pages: list[JobPage]) -> list[str]:
    return [job.id for page in pages for job in page.jobs]


def test_each_state_has_its_list(scene: Scene) -> None:
    ended, dead = scene.end(7), scene.kill(7)
    scheduled = scene.add(4, delay_ms=60_000) + scene.add(3, delay_ms=5_000, tenant="zeta")
    active = scene.add(5)
    assert len(scene.lease(5)) == 5
    pending = scene.add(6)
    want = {"ended": ended, "dead": dead, "scheduled": scheduled, "active": active, "pending": pending}
    for state, ids in want.items():
        pages = every_page(state)
        assert sorted(all_ids(pages)) == sorted(ids), state
        assert [(page.total, page.exact, page.state) for page in pages] == [(len(ids), True, state)] * len(pages)
    assert {job.record.tenant for job in list_jobs("default", "scheduled", count=3).jobs} == {"zeta"}, "by due time"
    newest = list_jobs("default", "ended", count=2).jobs
    assert all(job.ended_at == max(find.ended_at for find in newest if find.ended_at) for job in newest)


def test_conditions(scene: Scene) -> None:
    scene.end(4)
    want = scene.end(3, tenant="zeta") + scene.end(2, tenant="zeta", task="shop.tasks.mail")
    assert sorted(all_ids(every_page("ended", tenant="zeta"))) == sorted(want)
    assert sorted(all_ids(every_page("ended", tenant="zeta", task="shop.tasks.mail"))) == sorted(want[3:])
    page = list_jobs("default", "ended", tenant="zeta", task="shop.tasks.mail")
    assert (page.total, page.exact) == (2, True)
    page = list_jobs("default", "ended", tenant="zeta", count=1)
    assert (page.total, page.exact) == (9, False)
    scene.kill(2, tenant="a")
    dead = scene.kill(3, tenant="b")
    page = list_jobs("default", "dead", tenant="b", count=2)
    assert (page.total, page.exact) == (3, True)
    assert sorted(all_ids(every_page("dead", tenant="b", count=2))) == sorted(dead)


def test_what_ends_between_two_pages_shifts_nothing(scene: Scene) -> None:
    want = scene.end(20)
    seen: list[str] = []
    cursor = ""
    while True:
        page = list_jobs("default", "ended", count=6, cursor=cursor)
        seen += [job.id for job in page.jobs]
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
        scene.end(4)
    assert sorted(set(seen) & set(want)) == sorted(want)
    assert len(seen) == len(set(seen))


def test_pending_jobs_of_a_tenant_lane_by_lane_in_their_order(scene: Scene) -> None:
    slow = scene.add(4, lane="slow")
    late, soon = scene.add(2, priority=-5), scene.add(2, priority=5)
    again = scene.add(2, tier="continue")
    scene.add(3, tenant="zeta")
    for count in (1, 3, 50):
        pages = every_page("pending", tenant="acme", count=count)
        assert all_ids(pages) == [*soon, *late, *again, *slow]
        assert {page.total for page in pages} == {10}
        assert all(page.exact for page in pages)
    assert list_jobs("default", "pending", tenant="nobody").total == 0
    mail = scene.add(2, task="shop.tasks.mail", lane="slow")
    assert all_ids(every_page("pending", tenant="acme", task="shop.tasks.mail", count=1)) == mail


def test_pending_jobs_of_a_paused_lane_and_tenant_are_listed(scene: Scene) -> None:
    """They stand in no walk; what was configured names the lane."""
    pool, tenant = Pool.objects.create(name="default"), Tenant.objects.create(key="acme")
    TenantLimits.objects.create(pool=pool, tenant=tenant, lane="slow", paused=True)
    want = scene.add(2) + scene.add(3, lane="slow")
    version = scene.store.client.hget(scene.keys["conf"], "version")
    scopes = [ScopeLimits(tenant="acme", lane="slow", paused=True), ScopeLimits(tenant="acme", paused=True)]
    scene.store.configure(int(version or 0) + 1, scopes=scopes)
    assert all_ids(every_page("pending", tenant="acme", count=2)) == want
    assert list_jobs("default", "pending").jobs == (), "nothing would run"
    assert list_jobs("default", "pending").total == 5


def test_what_would_run_next_in_that_order(scene: Scene) -> None:
    scene.add(4, tenant="a")
    scene.add(3, tenant="b")
    scene.add(2, delay_ms=60_000)
    pages = every_page("pending", count=3)
    want = [scene.keys.public_id(job_id) for _, _, job_id in scene.store.peek(20)]
    assert all_ids(pages) == want
    assert [page.total for page in pages] == [7, 7, 7]
    assert [job.record.tenant for job in pages[0].jobs] == ["a", "b", "a"]
    scene.add(2, tenant="b", task="shop.tasks.mail")
    mail = every_page("pending", task="shop.tasks.mail", count=1)
    assert len(all_ids(mail)) == 2


def test_what_would_run_next_ends_somewhere(scene: Scene) -> None:
    scene.add(MAX_NEXT + 50)
    page = list_jobs("default", "pending", cursor=str(MAX_NEXT - 20), count=100)
    assert (len(page.jobs), page.next_cursor, page.total) == (20, None, MAX_NEXT + 50)


@pytest.mark.parametrize("state", ["", "blocked", "PENDING", "dead "])
def test_a_state_that_there_is_not(state: str) -> None:
    with pytest.raises(InvalidOption, match=f"there are {', '.join(STATES)}"):
        list_jobs("default", state)


@pytest.mark.parametrize("state", ["pending", "ended"])
@pytest.mark.parametrize(
    "cursor",
    [
        "x y",
        "1",
        "q,main",
        "1,2,3,4,5",
        "\n",
        "1,a'b",
        "-",
        "٣",
        ",x",
        "-,x",
        "1,",
        "1e,x",
        "nan,x",
        "q,main,1,",
        "9" * 18 + ",x",
    ],
)
def test_a_cursor_that_is_none(scene: Scene, state: str, cursor: str) -> None:
    tenant = "acme" if state == "pending" else ""
    with pytest.raises(InvalidOption, match="is no cursor"):
        list_jobs("default", state, cursor=cursor, tenant=tenant)


@pytest.mark.parametrize("cursor", ["x", "-1", "1,x", "1234567", "٣"])
def test_a_number_of_jobs_that_is_none(scene: Scene, cursor: str) -> None:
    with pytest.raises(InvalidOption, match="is no cursor"):
        list_jobs("default", "pending", cursor=cursor)


def test_a_page_is_never_larger_than_its_cap(scene: Scene) -> None:
    scene.end(MAX_COUNT + 10)
    assert len(list_jobs("default", "ended", count=10**9).jobs) == MAX_COUNT
    assert len(list_jobs("default", "ended", count=-1).jobs) == 1


def test_every_page_costs_at_most_eight_round_trips(scene: Scene, round_trips: RoundTrips) -> None:
    scene.end(400)
    scene.kill(300)
    scene.add(300, delay_ms=60_000)
    for lane in range(30):
        scene.add(4, lane=f"lane{lane}")
    scene.lease(100)
    for state in State:
        for conditions in ({}, {"tenant": "acme"}, {"task": "shop.tasks.none"}, {"tenant": "x", "task": "y"}):
            list_jobs("default", state.value)  # connections are made
            round_trips.since_last()
            cursor = ""
            for _ in range(4):
                page = list_jobs("default", state.value, cursor=cursor, count=20, **conditions)
                assert round_trips.since_last() <= MOST_ROUND_TRIPS, (state, conditions)
                cursor = page.next_cursor or ""


def job(state: State, **values: Any) -> JobView:
    record = JobRecord(id="x", state=state, task="t", tenant="a", lane="main", **values)
    return JobView(id="p.0.x", pool="p", record=record)


def seconds(number: int) -> timedelta:
    return timedelta(seconds=number)


def error(kind: str, at_ms: int) -> ErrorRecord:
    return ErrorRecord(kind=kind, attempt=1, worker="w", at_ms=at_ms, detail={})


TIMES = {"submitted_ms": 1_000, "ready_ms": 5_000, "leased_ms": 7_000, "ended_ms": 10_000}


def test_wait_and_duration_of_what_ran() -> None:
    ended = job(State.ENDED, outcome=Outcome.COMPLETED, **TIMES)
    assert (ended.wait, ended.duration) == (seconds(2), seconds(3))
    raised = job(State.DEAD, errors=(error("error", 10_000),), **TIMES)
    assert (raised.wait, raised.duration) == (seconds(2), seconds(3))


def test_no_duration_where_nobody_saw_the_end() -> None:
    lost = job(State.DEAD, errors=(error("lost", 10_000),), **TIMES)
    set_aside = job(State.DEAD, errors=(error("error", 8_000),), **TIMES)
    discarded = job(State.ENDED, outcome=Outcome.DISCARDED, errors=(error("error", 8_000),), **TIMES)
    cancelled = job(State.ENDED, outcome=Outcome.CANCELLED, submitted_ms=1_000, ready_ms=1_000, ended_ms=9_000)
    assert [view.duration for view in (lost, set_aside, discarded, cancelled)] == [None] * 4
    assert cancelled.wait is None, "it was never leased"
    scheduled = job(State.SCHEDULED, **TIMES)
    assert (scheduled.wait, scheduled.duration) == (None, None)


def test_what_goes_on_is_measured_until_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queueapp.inspection.jobs.now_ms", lambda: 20_000)
    pending = job(State.PENDING, submitted_ms=1_000, ready_ms=5_000)
    active = job(State.ACTIVE, submitted_ms=1_000, ready_ms=5_000, leased_ms=7_000)
    assert (pending.wait, pending.duration) == (seconds(15), None)
    assert (active.wait, active.duration) == (seconds(2), seconds(13))


def test_the_time_before_it_was_due_is_known_also_after_the_end(scene: Scene) -> None:
    (public_id,) = scene.add(delay_ms=3_600_000)
    [inner] = scene.inner([public_id])
    scene.store.client.zadd(scene.keys["scheduled"], {inner: 1})  # its time has come, whatever its row says
    scene.store.promote_due()
    found = find_job(public_id)
    assert found is not None
    due_ms = found.record.ready_ms
    assert due_ms - found.record.submitted_ms == 3_600_000
    assert len(scene.lease()) == 1
    scene.store.client.unlink(scene.keys.job(inner))
    found = find_job(public_id)
    assert found is not None
    assert found.record.ready_ms == due_ms, "kept by the lease: an ended row is gone"
    scene.store.client.unlink(scene.keys.run(inner))
    for key in ("active", "held:w.1"):
        scene.store.client.unlink(scene.keys[key])


def test_a_paused_pool_runs_nothing_next(scene: Scene) -> None:
    scene.add(2)
    scene.store.configure(1, pool=PoolConf(paused=True))
    page = list_jobs("default", "pending")
    assert (page.jobs, page.total, page.next_cursor) == ((), 2, None)


def test_pending_jobs_with_concurrency_keys_are_listed_whether_they_wait_for_a_key_or_not(scene: Scene) -> None:
    def use(name: str) -> KeyUse:
        return KeyUse(digest=digest(name), text=name, limit=1, pattern=digest(name))

    plain = scene.add(2)
    one = scene.add(3, keys=(use("a"),))
    two = scene.add(2, keys=(use("b"),), lane="slow")
    scene.add(2, keys=(use("a"),), tenant="zeta")
    for count in (1, 3, 50):
        pages = every_page("pending", tenant="acme", count=count)
        assert sorted(all_ids(pages)) == sorted(plain + one + two)
        assert {page.total for page in pages} == {7}
        assert all(page.exact for page in pages)
    gone = {job.id for job in scene.lease(50)}
    assert len(gone) == 4, "both plain jobs, and one of each key"
    left = [job_id for job_id in plain + one + two if job_id.rpartition(".")[2] not in gone]
    for count in (1, 3, 50):
        pages = every_page("pending", tenant="acme", count=count)
        assert sorted(all_ids(pages)) == sorted(left)
        assert {page.total for page in pages} == {len(left)}
