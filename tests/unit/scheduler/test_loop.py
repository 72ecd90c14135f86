"""The scheduler's loop with duties that fail, and how often duties come."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from queueapp.errors import DuctorError, StoreError, StoreMisconfigured, StoreUnavailable
from queueapp.outage import Outage
from queueapp.scheduler.duties import Pace
from queueapp.scheduler.duties.backlog import Backlog
from queueapp.scheduler.duties.promotion import Promotion
from queueapp.scheduler.duties.reranking import Reranking
from queueapp.scheduler.loop import Scheduler
from queueapp.store.family_records import ChildEnd, Note
from queueapp.store.leader_records import Reranked
from queueapp.store.records import Leaving, Moved, Recovered, Stub
from tests.clock import Clock
from tests.unit.scheduler.leases import FakeLead


class Duties(FakeLead):
    """A store whose duties are counted and may fail."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self.promoted = 0
        self.recovered = 0
        self.trimmed = 0
        self.fault: Exception | None = None
        self.changed = threading.Condition()

    def promote_due(self, limit: int = 100) -> Moved:
        self._count("promoted")
        return Moved(pending=1, more=self.promoted < 5)

    def backlog_promote(self, seed: int, most: int = 64) -> Moved:
        return Moved()

    def partition_recover(self, limit: int = 100, witness: str = "", after: str = "") -> Recovered:
        self._count("recovered")
        return Recovered(pending=0, dead=0, cancelled=0, more=False, workers=0, after="")

    def rerank(self, most: int = 250) -> Reranked:
        return Reranked(moved=0, gone=0, total=0, more=False)

    def departed(self, most: int = 250, after: tuple[str, str] | None = None, ids: Sequence[str] = ()) -> Leaving:
        return Leaving(jobs=[], cursor=None)

    def arrived(self, jobs: Sequence[tuple[str, int, bool]]) -> list[str]:
        return []

    def recall(self, jobs: Sequence[tuple[str, int]]) -> list[str]:
        return []

    def stubs(self, found: Sequence[tuple[str, int, str]] = (), *, every_ms: int, most: int = 250) -> list[Stub]:
        return []

    def outbox(self, most: int = 100, after: str = "") -> list[Note]:
        return []

    def relayed(self, entries: Sequence[str]) -> None: ...

    def child_done(self, ends: Sequence[ChildEnd]) -> list[int]:
        return []

    def trim(self, **options: int) -> bool:
        self._count("trimmed")
        return False

    def _count(self, name: str) -> None:
        with self.changed:
            setattr(self, name, getattr(self, name) + 1)
            self.changed.notify_all()
            if self.fault:
                raise self.fault

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, 10)


class Broken:
    """A duty with a bug."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self) -> float:
        self.calls += 1
        raise ZeroDivisionError("a bug")


def running(scheduler: Scheduler) -> threading.Thread:
    thread = threading.Thread(target=scheduler.run)
    thread.start()
    return thread


def test_every_duty_of_every_pool_is_done_and_more_is_done_at_once() -> None:
    stores = {"a": Duties(), "b": Duties()}
    scheduler = Scheduler("me", lambda: list(stores), lambda pool: cast(Any, stores[pool]))
    thread = running(scheduler)
    for store in stores.values():
        store.wait(lambda store=store: store.promoted >= 6 and store.recovered >= 2 and store.trimmed >= 1)  # type: ignore[misc]  # mypy infers no lambda with a default
        assert store.nonce
    scheduler.stop()
    thread.join(5)
    assert not any(store.nonce for store in stores.values()), "leases are given back"


def test_a_bug_in_one_duty_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    store, broken = Duties(), Broken()
    scheduler = Scheduler("me", lambda: ["a"], lambda pool: cast(Any, store), [broken])
    with caplog.at_level(logging.WARNING, "queueapp"):
        thread = running(scheduler)
        store.wait(lambda: store.recovered >= 3)
        scheduler.stop()
        thread.join(5)
    assert 1 <= broken.calls <= 8
    assert sum("A duty failed" in entry.message for entry in caplog.records) == 1


def test_while_the_store_is_away_pauses_grow_and_one_message_is_told(caplog: pytest.LogCaptureFixture) -> None:
    store = Duties()
    store.fault = StoreUnavailable("the store is away")
    scheduler = Scheduler("me", lambda: ["a"], lambda pool: cast(Any, store))
    with caplog.at_level(logging.WARNING, "queueapp"):
        thread = running(scheduler)
        store.wait(lambda: store.promoted >= 3)
        store.fault = None
        store.wait(lambda: store.promoted >= 6)
        scheduler.stop()
        thread.join(5)
    told = [entry.message for entry in caplog.records]
    assert sum("Trying again" in message for message in told) == 1
    assert sum("Back after" in message for message in told) == 1


def test_pace() -> None:
    pace = Pace(busy_s=0.25, idle_s=1.0)
    assert pace.after(worked=True, more=True) == 0
    assert pace.after(worked=True, more=False) == 0.25
    assert [pace.after(worked=False, more=False) for _ in range(4)] == [0.5, 1.0, 1.0, 1.0]
    assert pace.after(worked=True, more=False) == 0.25


def test_reranking_rests_as_long_as_it_worked_and_tells_when_it_begins_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shares = [(0, False), (250, True), (250, True), (100, True), (0, False), (0, False)]

    class Store:
        gone = 0

        def rerank(self, most: int = 250) -> Reranked:
            moved, more = shares.pop(0)
            self.gone += moved
            return Reranked(moved=moved, gone=self.gone, total=600 if more else 0, more=more)

    duty = Reranking("default", Store())
    with caplog.at_level(logging.INFO, "queueapp"):
        pauses = [duty.run() for _ in range(6)]
    assert [pause < 0.1 for pause in pauses] == [False, True, True, True, False, False]
    assert [record.getMessage() for record in caplog.records] == [
        "The policy has changed: 250 of 600 waiting jobs have moved over to the new order",
        "All 600 jobs have moved over to the new order",
    ]


@pytest.mark.parametrize(("next_due_ms", "expected"), [(-1, 0.25), (60_000, 0.25), (100, 0.1), (0, 0.01)], ids=str)
def test_promotion_comes_when_the_next_is_due(next_due_ms: int, expected: float) -> None:
    class Store:
        def promote_due(self, limit: int = 100) -> Moved:
            return Moved(pending=1, next_due_ms=next_due_ms)

    assert Promotion(Store()).run() == expected


@pytest.mark.parametrize(("next_due_ms", "expected"), [(-1, 0.25), (60_000, 0.25), (100, 0.1), (0, 0.01)], ids=str)
def test_the_backlog_is_drawn_from_when_the_next_is_due_and_each_time_anew(next_due_ms: int, expected: float) -> None:
    seeds = []

    class Store:
        def backlog_promote(self, seed: int, most: int = 64) -> Moved:
            seeds.append(seed)
            return Moved(pending=1, next_due_ms=next_due_ms)

    duty = Backlog(Store())
    assert [duty.run() for _ in range(3)] == [expected] * 3
    assert len(set(seeds)) == 3


def test_outage_tells_once_reminds_and_tells_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(logging.getLogger("queueapp.test"), clock=clock, uniform=lambda: 1.0)
    pauses = []
    with caplog.at_level(logging.WARNING, "queueapp"):
        for _ in range(8):
            for party in ("a", "b"):
                pauses.append(outage.failed(party, StoreUnavailable("refused.")))
        assert len(caplog.records) == 1
        outage.failed("a", StoreUnavailable("loading."))
        assert len(caplog.records) == 1, "a changed reason waits a moment"
        clock.now += 6
        outage.failed("a", StoreUnavailable("loading."))
        assert len(caplog.records) == 2
        clock.now += 61
        outage.failed("a", StoreUnavailable("loading."))
        assert len(caplog.records) == 3
        outage.worked("a")
        assert len(caplog.records) == 3, "b is still away"
        outage.worked("b")
        outage.worked("b")
        assert len(caplog.records) == 4
    assert pauses[::2] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert not outage.away("a")


def test_outage_with_two_lasting_reasons_is_no_flood(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(logging.getLogger("queueapp.test"), clock=clock)
    with caplog.at_level(logging.WARNING, "queueapp"):
        for _ in range(600):
            outage.failed("a", StoreError("one reason."))
            outage.failed("b", StoreError("another reason."))
            clock.now += 1
    assert 16 <= len(caplog.records) <= 22, "each once a minute"


def test_a_duty_that_the_store_refuses_holds_up_no_other(lead: FakeLead, caplog: pytest.LogCaptureFixture) -> None:
    """A full store takes no promotions; the lease of leadership and the recovery go on in time."""

    class Full:
        recovered = 0

        def __getattr__(self, name: str) -> object:
            return getattr(lead, name)

        def promote_due(self, limit: int = 100) -> Moved:
            raise StoreMisconfigured("full")

        backlog_promote = promote_due

        def partition_recover(self, limit: int = 100, witness: str = "", after: str = "") -> Recovered:
            self.recovered += 1
            return Recovered(pending=0, dead=0, cancelled=0, more=False, workers=0, after="")

        def rerank(self, most: int = 250) -> Reranked:
            return Reranked(moved=0, gone=0, total=0, more=False)

        def departed(self, most: int = 250, after: object = None) -> Leaving:
            return Leaving(jobs=[], cursor=None)

        def stubs(self, **options: object) -> list[Stub]:
            return []

        def outbox(self, most: int = 100, after: str = "") -> list[Note]:
            return []

        def trim(self, *args: object, **options: object) -> bool:
            return False

    store = Full()
    scheduler = Scheduler("s", lambda: ["default"], lambda pool: cast(Any, store), clock=time.monotonic)
    lead.clock.now = 0
    with caplog.at_level(logging.WARNING, "queueapp"):
        thread = threading.Thread(target=scheduler.run)
        thread.start()
        deadline = time.monotonic() + 10
        while (store.recovered < 3 or not lead.granted) and time.monotonic() < deadline:
            time.sleep(0.01)
        scheduler.stop()
        thread.join(5)
    assert store.recovered >= 3
    assert lead.granted
    assert [record.getMessage() for record in caplog.records] == [
        "full Trying again with growing pauses; nothing is lost."
    ]


def test_a_renamed_pool_is_led_under_its_new_name_alone(lead: FakeLead, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under both, the new one would never be led, and the alert for a pool without a leader would ring for ever."""
    names = ["mail", "other"]
    stores = {"mail": Duties(), "other": Duties()}
    stores["post"] = stores["mail"]
    monkeypatch.setattr("queueapp.scheduler.loop.POOLS_EVERY_S", 0.01)
    monkeypatch.setattr("queueapp.store.shards.keys", lambda pool: {"post": "mail"}.get(pool, pool))

    def look() -> list[str]:
        with stores["mail"].changed:
            stores["mail"].changed.notify_all()
        return list(names)

    scheduler = Scheduler("me", look, lambda pool: cast(Any, stores[pool]))
    thread = running(scheduler)
    try:
        stores["mail"].wait(lambda: scheduler.leading() == {"mail": True, "other": True})
        names[:] = ["post"]  # `other` was deleted: whoever still has jobs there is served on
        stores["mail"].wait(lambda: scheduler.leading() == {"post": True, "other": True})
    finally:
        scheduler.stop()
        thread.join(30)
    assert len(stores["mail"].granted) == 2
    assert stores["mail"].nonce == ""


def test_a_scheduler_whose_thread_broke_gives_its_leases_up_and_ends(lead: FakeLead, clock: Clock) -> None:
    """Who went on renewing them would keep every other scheduler from leading."""

    class Broken:
        broken = False
        turned_at = 0.0

        def start(self) -> None: ...

        def add(self, *_: Any) -> None: ...

        def notice(self) -> None:
            self.broken = True

        def let_go(self, pool: str) -> None: ...

        def stop(self) -> None: ...

    store = Duties()
    scheduler = Scheduler("me", lambda: ["mail"], lambda _: cast(Any, store), leading=cast(Any, Broken()))
    with pytest.raises(DuctorError, match="thread that leads has ended"):
        scheduler.run()
    assert store.granted
    assert not store.nonce, "given up"
