"""Dead letters by page, by group, one after another: exact where an index answers, bounded where rows must be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from queueapp.inspection import bulk
from queueapp.inspection.actions import Done
from queueapp.inspection.deadletters import (
    DeadLetters,
    dead_groups,
    dead_letters,
    every_dead_letter,
)
from queueapp.inspection.selection import Filter, Selection, batches
from queueapp.states import State
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.conftest import Scene

ONE, TWO = "0123456789ab", "ba9876543210"
MOST_ROUND_TRIPS = 8


def ids(page: DeadLetters) -> list[str]:
    return [letter.id for letter in page.letters]


def test_pages_of_a_pool_a_tenant_and_a_group_are_exact(scene: Scene) -> None:
    of_acme = scene.kill(3, group=ONE)
    of_zeta = scene.kill(2, tenant="zeta", group=TWO)
    whole = dead_letters("default")
    assert (sorted(ids(whole)), whole.total, whole.exact) == (sorted(of_acme + of_zeta), 5, True)
    assert set(ids(whole)[:2]) == set(of_zeta), "the newest first"
    for chosen, want in ((Filter(tenant="acme"), of_acme), (Filter(group=TWO), of_zeta)):
        page = dead_letters("default", chosen)
        assert (sorted(ids(page)), page.total, page.exact, page.next_offset) == (sorted(want), len(want), True, None)
    page = dead_letters("default", offset=1, count=2)
    assert (ids(page), page.total, page.next_offset) == (ids(whole)[1:3], 5, 3)
    assert dead_letters("default", Filter(tenant="nobody")).total == 0


def test_several_conditions_are_looked_through(scene: Scene) -> None:
    scene.kill(4, group=ONE)
    want = scene.kill(2, tenant="zeta", group=ONE)
    scene.kill(3, tenant="zeta", group=TWO, task="shop.tasks.mail")
    for chosen in (
        Filter(tenant="zeta", group=ONE),
        Filter(tenant="zeta", tasks=("shop.tasks.pay",)),
        Filter(group=ONE, tenant="zeta", tasks=("shop.tasks.pay",), reason="error"),
    ):
        page = dead_letters("default", chosen)
        assert (sorted(ids(page)), page.total, page.exact) == (sorted(want), 2, True), "the whole was seen"
    page = dead_letters("default", Filter(tenant="zeta", group=ONE), count=1)
    assert (len(page.letters), page.exact) == (1, False)
    assert page.total >= 2
    further = dead_letters(
        "default",
        Filter(tenant="zeta", group=ONE, as_of_ms=page.as_of_ms),
        count=5,
        offset=page.next_offset or 0,
    )
    assert sorted(ids(page) + ids(further)) == sorted(want)
    assert dead_letters("default", Filter(reason="worker_lost")).letters == ()


def test_pages_as_of_a_moment_do_not_move(scene: Scene) -> None:
    old = scene.kill(4)
    first = dead_letters("default", count=2)
    while dead_letters("default").as_of_ms <= first.as_of_ms:
        pass  # until the server's clock has moved on
    scene.kill(3)
    second = dead_letters("default", Filter(as_of_ms=first.as_of_ms), count=2, offset=first.next_offset or 0)
    assert sorted(ids(first) + ids(second)) == sorted(old)
    assert (second.total, second.as_of_ms, second.next_offset) == (4, first.as_of_ms, None)


def test_a_letter_that_was_retried_meanwhile_is_not_shown(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = scene.kill(2)
    from queueapp.store.reads import Reads

    jobs = Reads.jobs

    def late(self: Reads, inner: list[str]) -> object:
        scene.store.retry_from_dlq(scene.inner([one]))
        return jobs(self, inner)

    monkeypatch.setattr(Reads, "jobs", late)
    assert ids(dead_letters("default")) == [two]


def test_groups_name_cause_number_and_newest_member(scene: Scene) -> None:
    scene.kill(3, group=ONE)
    (newest,) = scene.kill(1, group=TWO, task="shop.tasks.mail")
    groups, total = dead_groups("default")
    assert total == 2
    assert {group.fingerprint: group.count for group in groups} == {ONE: 3, TWO: 1}
    [mail] = [group for group in groups if group.fingerprint == TWO]
    assert (mail.sample.id, mail.sample.record.task, mail.sample.group) == (newest, "shop.tasks.mail", TWO)
    assert mail.sample.last_error is not None
    assert mail.sample.last_error.detail["class"] == "builtins.ValueError"
    assert mail.first_at == mail.last_at
    assert len(dead_groups("default", offset=1, count=5)[0]) == 1


@pytest.mark.parametrize("act", [bulk.retry_many, bulk.discard_many])
@pytest.mark.django_db
def test_one_after_another_also_while_acting_on_each(scene: Scene, act: Callable[[Sequence[str]], Done]) -> None:
    """More than a page, with many that died in the same millisecond."""
    want = scene.bury(260)
    seen = []
    for letter in every_dead_letter("default"):
        seen.append(letter.id)
        act([letter.id])
        if len(seen) % 50 == 0:
            scene.bury(3, tenant="later")
    assert sorted(seen) == sorted(want)
    assert dead_letters("default").total == 15, "those that died after it began"


def test_ids_alone_come_in_batches(scene: Scene) -> None:
    want = scene.bury(25, tenant="a", task="shop.tasks.one")
    scene.bury(25, tenant="a", task="shop.tasks.two")
    meant = Selection(pool="default", states=(State.DEAD,), tenant="a", tasks=("shop.tasks.one",))
    found = [ids for _, ids in batches(meant, size=10)]
    assert [len(ids) for ids in found] == [10, 10, 5]
    assert sorted(job_id for ids in found for job_id in ids) == sorted(scene.inner(want))


@pytest.mark.parametrize("number", [3_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_every_page_of_many_letters_costs_at_most_eight_round_trips(
    scene: Scene, round_trips: RoundTrips, number: int
) -> None:
    half = number // 2 - 10
    scene.bury(10, tenant="small", task="shop.tasks.rare", reason="looks_wrong")
    scene.bury(half, tenant="large", task="shop.tasks.one")
    scene.bury(half, tenant="large", task="shop.tasks.two")
    scene.bury(10, tenant="small", task="shop.tasks.one")
    whole = dead_letters("default")
    assert (whole.total, whole.exact) == (number, True)
    group = next(letter.group for letter in whole.letters if letter.record.tenant == "large")
    round_trips.since_last()
    for chosen in (
        Filter(),
        Filter(tenant="large"),
        Filter(group=group),
        Filter(tenant="small", group=group),
        Filter(tenant="large", group=group),
        Filter(tasks=("shop.tasks.rare",)),
        Filter(reason="looks_wrong", tenant="large"),
        Filter(tenant="nobody", group="nothing"),
    ):
        for offset in (0, number // 2, number - 50):
            dead_letters("default", chosen, offset=offset)
            assert round_trips.since_last() <= MOST_ROUND_TRIPS, (chosen, offset)
    last = dead_letters("default", offset=number - 10)
    assert (len(last.letters), last.next_offset) == (10, None)
    assert {letter.record.tenant for letter in last.letters} == {"small"}
    round_trips.since_last()
    dead_groups("default")
    assert round_trips.since_last() <= 4


def test_a_page_of_several_conditions_looks_at_a_bounded_number_of_rows(scene: Scene) -> None:
    """The rare ones lie behind more rows than a page may look at: the page is empty, and not the last."""
    want = scene.bury(3, task="shop.tasks.rare")
    scene.bury(4_500)
    page = dead_letters("default", Filter(tasks=("shop.tasks.rare",)))
    assert (page.letters, page.next_offset, page.exact) == ((), 4_000, False)
    chosen = Filter(tasks=("shop.tasks.rare",), as_of_ms=page.as_of_ms)
    page = dead_letters("default", chosen, offset=4_000)
    assert (sorted(ids(page)), page.next_offset) == (sorted(want), None)
