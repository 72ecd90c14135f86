"""Selections reach everything, however many lanes and key sets there are, and stop and go on where they are told to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from queueapp.errors import InvalidOption
from queueapp.inspection import finding
from queueapp.inspection.bulk import cancel_many, discard_many
from queueapp.inspection.finding import Finding
from queueapp.inspection.jobs import list_jobs
from queueapp.inspection.selection import READS_OF_REQUEST, Selection, batches, count
from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.states import State
from queueapp.store import queues
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import KeyUse
from tests.lua.harness import Shard
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.conftest import Scene
from tests.unit.inspection.selecting import dead, live, states

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a few, so that a few jobs need several."""
    for module in (queues, finding, "queueapp.inspection.jobs"):
        name = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{name}.PAGE", 5)
    monkeypatch.setattr(finding, "TENANTS", 3)


def keyed(number: int) -> KeyUse:
    return KeyUse(digest=f"{number:016x}", limit=1, pattern="p" * 16, text=f"customer:{number}")


def crowd(scene: Scene) -> dict[str, list[str]]:
    """Many lanes of several tenants, some paused; many key sets in one of them, some of which wait for their key."""
    pool = Pool.objects.create(name="default")
    made: dict[str, list[str]] = {}
    for tenant in ("acme", "globex", "initech", "umbrella"):
        made[tenant] = [job for number in range(12) for job in scene.add(2, tenant=tenant, lane=f"lane{number}")]
        row = Tenant.objects.create(key=tenant)
        for lane in ("lane3", "paused"):
            TenantLimits.objects.create(pool=pool, tenant=row, lane=lane, paused=True)
        scene.store.configure(
            Tenant.objects.count(),
            scopes=[ScopeLimits(tenant=tenant, lane=lane, paused=True) for lane in ("lane3", "paused")],
        )
        made[tenant] += scene.add(1, tenant=tenant, lane="paused")
    for number in range(17):
        made["acme"] += scene.add(2, lane="main" if number % 2 else "lane7", keys=[keyed(number)])
    return made


def met(found: Iterator[tuple[State, list[str]]]) -> list[str]:
    return [job_id for _, page in found for job_id in page]


@pytest.mark.parametrize("size", [1, 4, 250])
def test_every_lane_and_key_set_of_every_tenant_is_reached_once(scene: Scene, size: int) -> None:
    made = crowd(scene)
    for tenant, ids in made.items():
        assert sorted(met(batches(live(State.PENDING, tenant=tenant), size=size))) == sorted(scene.inner(ids))
        found = count(live(State.PENDING, tenant=tenant))
        assert (found.number, found.exact) == (len(ids), True)
    everything = [job for ids in made.values() for job in ids]
    assert sorted(met(batches(live(State.PENDING), size=size))) == sorted(scene.inner(everything))


def test_a_lane_is_looked_for_by_name_and_not_among_the_first_key_sets(scene: Scene) -> None:
    for number in range(12):
        scene.add(1, lane="a", keys=[keyed(number)])
    last = [*scene.add(1, lane="z"), *scene.add(2, lane="z", keys=[keyed(99)])]
    scene.add(1, lane="zz", keys=[keyed(100)])
    assert sorted(met(batches(live(State.PENDING, tenant="acme", lane="z")))) == sorted(scene.inner(last))
    found = count(live(State.PENDING, lane="z"))
    assert (found.number, found.exact) == (3, True)


def test_lanes_beyond_what_one_reply_has_are_reached(scene: Scene) -> None:
    """The server gives small sets whole, and large ones in pages."""
    ids = [job for number in range(150) for job in scene.add(1, lane=f"lane{number}")]
    assert sorted(met(batches(live(State.PENDING)))) == sorted(scene.inner(ids))


def test_a_change_of_policy_meanwhile_hides_nothing(scene: Scene) -> None:
    ids = [*scene.add(7), *scene.add(3, lane="other"), *scene.add(2, keys=[keyed(1)])]
    one = Finding(live(State.PENDING).fixed(), size=2)
    found: set[str] = set()
    for number, (_, page) in enumerate(one):
        found.update(page)
        if number == 1:
            scene.store.configure(1, pool=PoolConf(policy="fifo"))
            scene.lease(1)  # which moves over a share of those that wait
    assert found >= set(scene.inner(ids))
    assert not one.whole


def every_request(selection: Selection, *, reads: int, size: int) -> list[list[str]]:
    """What each of several requests meets."""
    place, seen = "", []
    while True:
        one = Finding(selection, size=size, reads=reads, place=place)
        seen.append(met(iter(one)))
        assert one.place != place or not place, "each comes further"
        place = one.place
        if not place:
            return seen


@pytest.mark.parametrize("reads", [4, 7, 1_000])
def test_a_request_stops_at_its_number_of_reads_and_the_next_goes_on_there(scene: Scene, reads: int) -> None:
    made = crowd(scene)
    waiting = [*(job for ids in made.values() for job in ids), *scene.add(9, delay_ms=9_000_000)]
    buried = scene.bury(9, tenant="globex")
    scene.end(3, tenant="hooli")
    every = live(*(state for state in State if state is not State.MOVING)).fixed()
    shares = every_request(every, reads=reads, size=4)
    assert (len(shares) > 3) is (reads < 1_000)
    found = [job_id for share in shares for job_id in share]
    assert {*scene.inner(waiting), *scene.inner(buried)} <= set(found)
    assert len(found) == len(set(found)) == count(every).number


def test_the_place_of_a_request_is_right_also_while_it_acts(scene: Scene) -> None:
    made = crowd(scene)
    meant, place, seen = live(State.PENDING, tenant="acme").fixed(), "", 0
    while True:
        done = cancel_many(meant, most=7, place=place)
        seen += done.counts.get("cancelled", 0)
        place = done.place
        if not done.more:
            break
    assert (seen, done.place) == (len(made["acme"]), "")
    assert set(states(made["acme"])) == {"cancelled"}


def test_a_request_reads_a_bounded_number_of_times_where_nothing_is_pending(
    scene: Scene, round_trips: RoundTrips
) -> None:
    """Two hundred tenants that wait for their time: none of them has anything in line."""
    for number in range(200):
        scene.add(1, tenant=f"t{number:03}", delay_ms=9_000_000)
    meant = live(State.PENDING, tasks=("shop.tasks.pay",)).fixed()
    round_trips.since_last()
    done = discard_many(meant, most=1_000)
    assert round_trips.since_last() <= 5 * READS_OF_REQUEST
    assert (done.counts, done.more) == ({}, True)
    requests = 1
    while done.more:
        before, done = done.place, discard_many(meant, most=1_000, place=done.place)
        assert done.place != before
        requests += 1
    assert requests > 3
    found = count(meant, reads=READS_OF_REQUEST)
    assert (found.number, found.exact) == (0, False)


@pytest.mark.parametrize("place", ["nonsense", "gone,,,,,0", "dead,,,,,x", "pending,,,,,0"])
def test_what_is_no_place_of_the_selection_is_refused(scene: Scene, place: str) -> None:
    with pytest.raises(InvalidOption, match="go on from"):
        list(Finding(dead().fixed(), size=1, place=place))


def test_a_place_of_another_selection_reaches_nothing_of_that_one(scene: Scene) -> None:
    scene.bury(3, tenant="globex")
    mine = scene.bury(2)
    theirs = Finding(dead(tenant="globex").fixed(), size=1, reads=1)
    list(theirs)
    assert theirs.place.startswith("dead,dead:globex,")
    assert met(iter(Finding(dead(tenant="acme").fixed(), size=9, place=theirs.place))) == scene.inner(mine)


@pytest.mark.parametrize(("count", "names"), [(3, 5), (200, 5), (200, 2)])
def test_the_list_of_a_tenant_has_every_lane_and_key_set(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, count: int, names: int
) -> None:
    for module in ("queueapp.store.queues", "queueapp.inspection.jobs"):
        monkeypatch.setattr(f"{module}.PAGE", names)
    made, cursor, ids, pages = crowd(scene), "", [], 0
    while True:
        page = list_jobs("default", "pending", tenant="acme", count=count, cursor=cursor)
        ids += [job.id for job in page.jobs]
        pages += 1
        assert (page.exact, page.at_least) == (False, True), "not all key sets were counted"
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert sorted(ids) == sorted(made["acme"])
    assert list_jobs("default", "pending", tenant="globex", count=count).exact


def test_what_has_grown_since_it_was_counted_is_met_whole(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    small, other = scene.add(1, lane="a"), scene.add(1, lane="b")
    sizes = queues.QueueReads.sizes
    late: list[str] = []

    def grows(self: queues.QueueReads, names: Sequence[str], of: Any) -> list[int]:
        found = sizes(self, names, of)
        if not late:
            late.extend(scene.add(7, lane="a"))
        return found

    monkeypatch.setattr(queues.QueueReads, "sizes", grows)
    meant = Selection(pool="default", states=(State.PENDING,), as_of_ms=10**14)
    assert sorted(met(batches(meant, size=2))) == sorted(scene.inner([*small, *other, *late]))


def test_what_goes_on_meanwhile_is_met_further_on(scene: Scene, shard: Shard) -> None:
    ids = [*scene.add(1), *scene.add(1, delay_ms=30_000)]
    meant = live(State.PENDING, State.SCHEDULED).fixed()
    found: set[str] = set()
    for _, page in Finding(meant, size=9):
        found.update(page)
        shard.now_ms = meant.as_of_ms + 60_000
        shard.store.promote_due()
    assert found == set(scene.inner(ids))


def test_a_place_in_an_order_that_is_gone_is_none_in_the_new_one(scene: Scene) -> None:
    """The one that came first has the least priority: it stood last, and stands first now."""
    [low], others = scene.add(1, priority=-100), scene.add(3)
    one = Finding(live(State.PENDING).fixed(), size=1, reads=2)
    assert met(iter(one)) == scene.inner(others[:1])
    scene.store.configure(1, pool=PoolConf(policy="fifo"))
    while scene.store.rerank().more:
        pass
    rest = met(iter(Finding(live(State.PENDING).fixed(), size=9, place=one.place)))
    assert set(rest) >= set(scene.inner([low, *others[1:]]))


def test_who_goes_on_among_many_key_sets_does_not_read_their_names_from_the_first(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        scene.add(1, keys=[keyed(number)])
    most = Finding(live(State.PENDING, tenant="acme").fixed(), size=1, reads=40)
    assert len(met(iter(most))) > 30
    sub_lanes, calls = queues.QueueReads.sub_lanes, []

    def counted(self: queues.QueueReads, *args: Any, **how: Any) -> list[list[str]]:
        calls.append(args)
        return sub_lanes(self, *args, **how)

    monkeypatch.setattr(queues.QueueReads, "sub_lanes", counted)
    rest = met(iter(Finding(live(State.PENDING, tenant="acme").fixed(), size=9, place=most.place)))
    assert 0 < len(rest) < 10
    assert len(calls) <= 3
