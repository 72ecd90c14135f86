"""browse: pages of an index by (score, id), right whatever comes and goes between them, bounded whatever is asked."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store.records import KeyUse
from queueapp.store.views import Cursor
from tests.lua.harness import START_MS, Shard, completed, failed


def kill(shard: Shard, number: int, *, at_once: bool = False, **options: Any) -> list[str]:
    """Dead letters, the oldest first."""
    ids = shard.add(*(shard.job(**{"tenant": "acme", **options}) for _ in range(number)))
    for job_id in ids:
        shard.store.move_to_dlq([job_id], options.get("reason", "by_hand"))
        shard.now_ms += 0 if at_once else 1
    return ids


def walk(shard: Shard, index: str, count: int, between: Any = None, **options: Any) -> list[str]:
    """All ids, page by page."""
    ids: list[str] = []
    after: Cursor | None = None
    while True:
        page = shard.reads.browse(index, count=count, after=after, **options)
        ids += page.ids
        if page.cursor is None:
            return ids
        after = page.cursor
        if between is not None:
            between(page.ids)


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("count", [1, 3, 7, 50])
def test_pages_hold_each_member_once_in_order_also_with_ties(
    shard: Shard, newest: bool, at_once: bool, count: int
) -> None:
    ids = kill(shard, 23, at_once=at_once)
    assert walk(shard, "dead", count, newest=newest) == (ids[::-1] if newest else ids)


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
def test_what_goes_and_comes_between_two_pages_shifts_nothing(shard: Shard, newest: bool, at_once: bool) -> None:
    """Every page is retried before the next is read, the last member of it among them; others die meanwhile."""
    ids = kill(shard, 23, at_once=at_once)
    shard.now_ms += 1

    def between(page: list[str]) -> None:
        shard.store.retry_from_dlq(page)
        if newest:
            kill(shard, 2)

    assert walk(shard, "dead", 5, between, newest=newest) == (ids[::-1] if newest else ids)


def test_later_deaths_are_left_out_as_of_a_moment(shard: Shard) -> None:
    ids = kill(shard, 6)
    as_of = shard.now_ms
    kill(shard, 3)
    page = shard.reads.browse("dead", newest=True, before_ms=as_of, count=4)
    assert (list(page.ids), page.size, page.position) == (ids[:1:-1], 6, 4)
    page = shard.reads.browse("dead", newest=True, before_ms=as_of, count=4, skip=4)
    assert (list(page.ids), page.size, page.position, page.cursor) == ([ids[1], ids[0]], 6, 6, None)


def test_later_deaths_are_left_out_from_the_oldest_on_too(shard: Shard) -> None:
    ids = kill(shard, 6)
    as_of = shard.now_ms
    kill(shard, 3)

    def between(page: list[str]) -> None:
        shard.store.discard(page)
        kill(shard, 2)

    page = shard.reads.browse("dead", before_ms=as_of, count=4)
    assert (list(page.ids), page.size, page.position) == (ids[:4], 6, 4)
    assert walk(shard, "dead", 4, between, before_ms=as_of) == ids
    assert walk(shard, "dead", 50, before_ms=as_of, tenant="acme") == ids[4:], "the last page was not discarded"


def test_lane_submission_and_several_tasks_are_conditions(shard: Shard) -> None:
    main = kill(shard, 2, task="shop.tasks.one")
    other = kill(shard, 2, lane="other", task="shop.tasks.two")
    as_of = shard.now_ms
    shard.now_ms += 1
    (late,) = kill(shard, 1, task="shop.tasks.three")
    assert walk(shard, "dead", 9, lane="other") == other
    assert walk(shard, "dead", 9, lane="main") == [*main, late]
    assert walk(shard, "dead", 9, submitted_by_ms=as_of) == [*main, *other]
    assert walk(shard, "dead", 9, task="shop.tasks.two\nshop.tasks.three") == [*other, late]
    assert walk(shard, "dead", 9, task="nobody.knows\nshop.tasks.one") == main
    assert walk(shard, "dead", 9, task="nobody.knows") == []


def test_an_exact_fit_is_the_last_page(shard: Shard) -> None:
    kill(shard, 4)
    assert shard.reads.browse("dead", count=4).cursor is None
    assert shard.reads.browse("dead", count=3).cursor is not None
    assert shard.reads.browse("nothing-here", count=3).cursor is None


def test_conditions_are_looked_up_in_the_rows(shard: Shard) -> None:
    mine = kill(shard, 3, tenant="a", task="shop.tasks.one")
    other = kill(shard, 2, tenant="b", task="shop.tasks.one")
    kill(shard, 2, tenant="a", task="shop.tasks.two")

    def ids(**conditions: str) -> list[str]:
        return list(shard.reads.browse("dead", count=9, **conditions).ids)  # type: ignore[arg-type]  # each has its own type

    assert ids(tenant="a", task="shop.tasks.one") == mine
    assert ids(tenant="b") == other
    assert ids(task="shop.tasks.one") == mine + other
    assert ids(task="1") == [], "a number is no name"
    assert ids(reason="error") == []
    record = shard.reads.job(mine[0])
    assert record is not None
    assert ids(group=record.group) == mine + other
    assert ids(tenant="a", group=record.group, reason="by_hand") == mine


def test_conditions_hold_for_jobs_that_were_never_leased(shard: Shard) -> None:
    one, two = shard.add(shard.job("a", delay_ms=5), shard.job("b", delay_ms=6))
    shard.add(shard.job("a", delay_ms=7, task="shop.tasks.other"))
    found = shard.reads.browse("scheduled", count=9, tenant="a", task="shop.tasks.bill")
    assert list(found.ids) == [one]
    assert list(shard.reads.browse("scheduled", count=9, tenant="b").ids) == [two]


def test_no_more_rows_are_looked_at_than_allowed(shard: Shard) -> None:
    kill(shard, 40, tenant="a")
    (wanted,) = kill(shard, 1, tenant="b")
    looked, after, calls = [], None, 0
    while True:
        page = shard.reads.browse("dead", count=5, looks=15, tenant="b", after=after)
        calls += 1
        looked.append(page.position)
        if page.cursor is None:
            break
        assert page.ids == []
        after = page.cursor
    assert (list(page.ids), looked, page.size) == ([wanted], [15, 30, 41], 41)


def test_a_row_that_cannot_be_read_fits_no_condition_and_fails_no_page(shard: Shard) -> None:
    one, two = kill(shard, 2)
    shard.client.rename(shard.keys.run(one), shard.keys["run:aside"])
    shard.client.set(shard.keys.run(one), "not a hash")
    assert list(shard.reads.browse("dead", count=5, reason="by_hand").ids) == [two]
    assert list(shard.reads.browse("dead", count=5).ids) == [one, two]
    shard.client.rename(shard.keys["run:aside"], shard.keys.run(one))


def test_ties_go_by_bytes_as_the_server_sorts_them(shard: Shard) -> None:
    """Not as some locale would: `a` before `B`, `_` nowhere."""
    names = [f"{head}{'0' * 21}" for head in "aB_Zb-A0z"]
    shard.add(*(shard.job(id=name) for name in names))
    shard.store.move_to_dlq(names, "by_hand")
    gone: list[str] = []

    def between(page: list[str]) -> None:
        gone.extend(page)
        shard.store.discard(page)

    assert walk(shard, "dead", 1, between) == sorted(names)


def test_every_index_can_be_walked(shard: Shard) -> None:
    shard.add(*(shard.job() for _ in range(6)), *(shard.job(delay_ms=9 - number) for number in range(3)))
    one, two, three = shard.lease(3)
    shard.store.complete([completed(one)])
    shard.store.fail([failed(two)])
    scheduled = [int(job_id) for job_id in shard.reads.browse("scheduled", count=9).ids]
    assert scheduled == sorted(scheduled, reverse=True), "by due time"
    assert list(shard.reads.browse("active", count=9).ids) == [three.id]
    assert list(shard.reads.browse("ended", count=9).ids) == [one.id]
    assert list(shard.reads.browse("dead:acme", count=9).ids) == [two.id]
    pending = shard.reads.browse("q:acme|main", count=2)
    assert pending.size == 3
    assert len(shard.reads.browse("q:acme|main", count=9, after=pending.cursor).ids) == 1


def test_ranks_of_negative_and_large_priorities_are_places_too(shard: Shard) -> None:
    shard.add(*(shard.job(priority=priority) for priority in (100, -100, 0, 7, 7, -100, 100)))
    whole = list(shard.reads.browse("q:acme|main", count=9).ids)
    assert walk(shard, "q:acme|main", 1) == whole
    assert shard.now_ms == START_MS


def test_what_stands_for_sub_lanes_in_a_queue_costs_a_tenth(shard: Shard) -> None:
    """Else a page of a lane with many key sets would hold nothing."""
    keys = [KeyUse(digest=f"{number:016x}", limit=1, pattern="p" * 16, text=str(number)) for number in range(40)]
    shard.add(*(shard.job(keys=[key]) for key in keys))
    (plain,) = shard.add(shard.job())
    assert shard.client.zcard(shard.keys["q:acme|main"]) == 41
    page = shard.reads.browse("q:acme|main", count=5, looks=6)
    assert (page.ids, page.cursor) == ([plain], None)
    page = shard.reads.browse("q:acme|main", count=5, looks=3)
    assert (page.ids, page.position) == ([], 30)
