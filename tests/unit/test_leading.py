"""The thread that leads and its dispatchers, with a store in memory: who does what after which event, never after which
time. What dispatch does to jobs is tested with the store (`tests/model/test_scheduled_parity.py`, `tests/integration`).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from queueapp.conf import settings
from queueapp.errors import Fenced, StoreUnavailable
from queueapp.scheduler.dispatching import FLUSH_S, FULL_S, LOOK_S, READ_AGAIN_S, Dispatcher
from queueapp.scheduler.leading import IDLE_ROUNDS, DispatchThread
from queueapp.store.configuration import PoolConf
from queueapp.store.leader_records import Admitted, Dispatched, IngressEntry, MirrorLane, Term
from tests.clock import Clock
from tests.model.own_policies import OWN

TERM = Term(epoch=1, nonce="n1", ttl_ms=5_000)
NEXT_TERM = Term(epoch=2, nonce="n2", ttl_ms=5_000)


def lane(tenant: str, seq: int, *, runs: bool = True) -> MirrorLane:
    return MirrorLane(
        tenant=tenant, lane="main", runs=runs, rank=seq, seq=seq, cost=1.0, tenant_weight=1.0, lane_weight=1.0
    )


class FakeDispatch:
    """One shard as a leader sees it: entries, what it was told, and what it answers. Also stands for its reads."""

    def __init__(self) -> None:
        self.conf = PoolConf(policy="own_ring", dispatch="scheduled", window=10)
        self.slots = 0
        self.entries: deque[IngressEntry] = deque()
        self.pages: list[list[MirrorLane]] = [[]]
        self.answers: deque[Dispatched] = deque()
        self.calls: list[tuple[Any, ...]] = []
        self.kept: tuple[int, bytes] = (0, b"")
        self.error: Exception | None = None
        self.resent = 0
        self.woken = threading.Event()
        self.done = threading.Condition()

    def said(self, name: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == name]

    def _call(self, *call: Any) -> None:
        with self.done:
            self.calls.append(call)
            self.done.notify_all()
        if self.error is not None:
            raise self.error

    def read_ingress(self, consumer: str, most: int = 250) -> list[IngressEntry]:
        self._call("read_ingress", consumer)
        return [self.entries.popleft() for _ in range(min(most, len(self.entries)))]

    def admit(self, term: Term, entries: Sequence[tuple[str, str, float | None]]) -> Admitted:
        self._call("admit", term.nonce, [*entries])
        return Admitted(admitted=len(entries), duplicates=0, garbled=0)

    def dispatch(self, term: Term, most: int, window: int, picks: Sequence[tuple[str, str]] = ()) -> Dispatched:
        self._call("dispatch", term.nonce, most, window, [*picks])
        return self.answers.popleft() if self.answers else Dispatched(jobs=0, room=window, runnable=False)

    def mirror(self, cursor: str = "0") -> tuple[str, list[MirrorLane]]:
        self._call("mirror", cursor)
        page = int(cursor)
        return ("0" if page + 1 >= len(self.pages) else str(page + 1)), self.pages[page]

    def flush_policy(self, term: Term, number: int, blob: bytes) -> bool:
        self._call("flush_policy", term.nonce, number)
        fresh = number > self.kept[0]
        if fresh:
            self.kept = (number, blob)
        return fresh

    def read_policy(self) -> tuple[int, bytes]:
        self._call("read_policy")
        return self.kept

    def wake_leader(self) -> None:
        self.woken.set()

    def configured(self) -> PoolConf:
        self._call("configured")
        return self.conf

    def live_slots(self, live_ms: int) -> int:
        self._call("live_slots", live_ms)
        return self.slots

    def weights(self, tenants: Sequence[str]) -> dict[str, float]:
        self._call("weights", [*tenants])
        return dict.fromkeys(tenants, 2.0)


@pytest.fixture
def store() -> FakeDispatch:
    return FakeDispatch()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leader(store: FakeDispatch, clock: Clock) -> Dispatcher:
    return Dispatcher("pool", store, lambda: store, own=lambda: OWN, clock=clock)


def entry(number: int, tenant: str = "ant") -> IngressEntry:
    return IngressEntry(entry=f"{number}-0", id=f"j{number}", tenant=tenant, cost=1.0, seq=number)


# -- one pool ------------------------------------------------------------------------------------------------------


def test_new_jobs_are_admitted_with_their_ranks_in_one_call(store: FakeDispatch, leader: Dispatcher) -> None:
    store.entries.extend([entry(1), entry(2, "bee"), IngressEntry(entry="3-0")])
    leader.round(TERM, told=True)
    assert store.said("read_ingress") == [("read_ingress", "n1")]
    assert store.said("weights") == [("weights", ["ant", "bee"])]
    assert store.said("admit") == [("admit", "n1", [("1-0", "j1", 1.0), ("2-0", "j2", 2.0), ("3-0", "", None)])]


def test_a_full_batch_asks_for_another_round(store: FakeDispatch, leader: Dispatcher) -> None:
    store.entries.extend(entry(number) for number in range(300))
    assert leader.round(TERM, told=True)
    assert not leader.round(TERM, told=False)
    assert [len(call[2]) for call in store.said("admit")] == [250, 50]


def test_where_the_store_knows_the_policy_it_ranks_and_chooses(store: FakeDispatch, leader: Dispatcher) -> None:
    store.conf = PoolConf(policy="wfq", dispatch="scheduled", window=3)
    store.entries.append(entry(1))
    store.answers.extend([Dispatched(jobs=2, room=1, runnable=True), Dispatched(jobs=1, room=0, runnable=True)])
    leader.round(TERM, told=True)
    assert store.said("admit") == [("admit", "n1", [("1-0", "j1", None)])]
    assert store.said("dispatch") == 2 * [("dispatch", "n1", 250, 3, [])]
    assert not store.said("mirror") + store.said("flush_policy") + store.said("read_policy")


def test_under_direct_dispatch_it_does_nothing(store: FakeDispatch, leader: Dispatcher) -> None:
    store.conf = PoolConf(policy="tiered")
    leader.round(TERM, told=True)
    assert [call[0] for call in store.calls] == ["configured"]


def test_a_change_of_the_configuration_is_seen_with_its_token(store: FakeDispatch, leader: Dispatcher) -> None:
    store.conf = PoolConf(policy="tiered")
    leader.round(TERM, told=True)
    store.conf = PoolConf(policy="own_ring", dispatch="scheduled", window=5)
    leader.round(TERM, told=False)
    assert not store.said("dispatch")
    leader.round(TERM, told=True)
    assert store.said("dispatch") == [("dispatch", "n1", 0, 5, [])]


def test_a_new_leader_begins_with_what_was_kept_and_the_whole_mirror(store: FakeDispatch, leader: Dispatcher) -> None:
    store.pages = [[lane("ant", 1)], [lane("bee", 2)]]
    leader.round(TERM, told=True)
    assert [call for call in store.calls if call[0] in ("read_policy", "mirror")] == [
        ("read_policy",),
        ("mirror", "0"),
        ("mirror", "1"),
    ]
    leader.round(TERM, told=True)
    assert len(store.said("mirror")) == 2, "from then on it follows"
    assert leader.begins(NEXT_TERM)
    leader.round(NEXT_TERM, told=True)
    assert len(store.said("mirror")) == 4


@pytest.mark.parametrize("lost", ["error", "resent"])
def test_after_a_reply_that_may_be_lost_the_mirror_is_read_anew(
    store: FakeDispatch, leader: Dispatcher, lost: str
) -> None:
    leader.round(TERM, told=True)
    if lost == "resent":
        store.resent += 1
    else:
        store.error = StoreUnavailable("away")
        with pytest.raises(StoreUnavailable):
            leader.round(TERM, told=True)
        store.error = None
    leader.round(TERM, told=True)
    assert len(store.said("mirror")) == 2


def test_a_mirror_that_chooses_nothing_right_is_read_anew_but_not_all_the_time(
    store: FakeDispatch, leader: Dispatcher, clock: Clock
) -> None:
    leader.round(TERM, told=True)
    for _ in range(5):
        store.answers.append(Dispatched(jobs=0, room=3, runnable=True))
        leader.round(TERM, told=True)
    assert len(store.said("mirror")) == 1
    assert leader.next_at <= clock.now + READ_AGAIN_S
    clock.now += READ_AGAIN_S
    leader.round(TERM, told=False)
    assert len(store.said("mirror")) == 2


def test_a_fenced_leader_does_nothing_more_under_its_term(
    store: FakeDispatch, leader: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    store.error = Fenced()
    store.entries.append(entry(1))
    assert not leader.round(TERM, told=True)
    made = len(store.calls)
    store.error = None
    assert not leader.round(TERM, told=True)
    leader.let_go()
    assert len(store.calls) == made
    assert not leader.begins(TERM)
    assert caplog.text.count("Fenced") == 1
    leader.round(NEXT_TERM, told=True)
    assert len(store.calls) > made


def test_what_the_policy_holds_is_kept_after_changes_and_before_the_lease_goes(
    store: FakeDispatch, leader: Dispatcher, clock: Clock
) -> None:
    store.entries.append(entry(1))
    leader.round(TERM, told=True)
    assert store.said("flush_policy") == [("flush_policy", "n1", 1)]
    leader.round(TERM, told=True)
    assert len(store.said("flush_policy")) == 1, "nothing changed"
    store.entries.append(entry(2))
    leader.round(TERM, told=True)
    assert len(store.said("flush_policy")) == 1, "not so soon again"
    assert leader.next_at <= clock.now + FLUSH_S
    leader.let_go()
    assert store.said("flush_policy")[1:] == [("flush_policy", "n1", 2)]


def test_an_automatic_window_is_the_slots_of_the_workers_up_to_the_ceiling(
    store: FakeDispatch, leader: Dispatcher, clock: Clock
) -> None:
    store.conf, store.slots = PoolConf(policy="fifo", dispatch="scheduled"), 6
    leader.round(TERM, told=True)
    store.slots = 9
    leader.round(TERM, told=True)
    store.answers.append(Dispatched(jobs=0, room=0, runnable=True))
    clock.now += FULL_S
    leader.round(TERM, told=True)
    assert leader.next_at <= clock.now + FULL_S, "workers may come while the window is full"
    clock.now += FULL_S
    store.conf = PoolConf(policy="fifo", dispatch="scheduled", max_in_flight=4)
    leader.round(TERM, told=True)
    assert [call[3] for call in store.said("dispatch")] == [6, 6, 9, 4]
    assert {call[1] for call in store.said("live_slots")} == {settings.lease_ms}, "a busy worker calls so often"


def test_a_policy_that_this_scheduler_does_not_have_is_named(store: FakeDispatch, clock: Clock) -> None:
    leader = Dispatcher("pool", store, lambda: store, own=dict, clock=clock)
    with pytest.raises(Exception, match=r"'pool' runs under the policy 'own_ring', and DUCTOR\[\"POLICIES\"\].*add it"):
        leader.round(TERM, told=True)


# -- the thread ----------------------------------------------------------------------------------------------------


class Leads:
    """A leadership whose term the test gives and takes."""

    def __init__(self, term: Term | None = None) -> None:
        self.term = term


class Tokens:
    """The blocking read: `give` lets it return; what it was asked is kept."""

    def __init__(self, clock: Clock) -> None:
        self.asked: list[tuple[list[str], float]] = []
        self.changed = threading.Condition()
        self.tokens: deque[str | Exception] = deque()
        self.clock = clock
        self.over = False
        self.clients: list[Closable] = []

    def give(self, token: str | Exception) -> None:
        with self.changed:
            self.tokens.append(token)
            self.changed.notify_all()

    def wait(self, client: Any, stores: Mapping[str, Any], timeout_s: float) -> str | None:
        assert not client.closed
        if client not in self.clients:
            self.clients.append(client)
        with self.changed:
            self.asked.append(([*stores], timeout_s))
            self.changed.notify_all()
            woken = [store.woken for store in stores.values()]
            while not (self.tokens or self.over or any(each.is_set() for each in woken)):
                self.changed.wait(0.005)
            for each in woken:
                each.clear()
            token = self.tokens.popleft() if self.tokens else None
        if isinstance(token, Exception):
            raise token
        return token

    def waits(self, times: int) -> None:
        """Until the thread waits for the n-th time."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked) >= times, 30)


class Closable:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


Lead = Callable[..., tuple[DispatchThread, Tokens]]


@pytest.fixture
def lead(clock: Clock) -> Iterator[Lead]:
    started: list[tuple[DispatchThread, Tokens]] = []

    def start(**pools: tuple[FakeDispatch, Leads]) -> tuple[DispatchThread, Tokens]:
        tokens = Tokens(clock)
        thread = DispatchThread(Closable, tokens.wait, clock=clock)
        for name, (store, leads) in pools.items():
            thread.add(Dispatcher(name, store, lambda store=store: store, own=lambda: OWN, clock=clock), leads)  # type: ignore[misc]
        thread.start()
        started.append((thread, tokens))
        return thread, tokens

    yield start
    for thread, tokens in started:
        tokens.over = True
        thread.stop()
        assert not thread._thread.is_alive()


def test_a_token_is_followed_by_a_round_of_that_pool_and_no_other(store: FakeDispatch, lead: Lead) -> None:
    other = FakeDispatch()
    _, tokens = lead(a=(store, Leads(TERM)), b=(other, Leads(TERM)))
    tokens.waits(1)
    first, others = len(store.said("dispatch")), len(other.said("dispatch"))
    assert tokens.asked[0][0] == ["a", "b"], "one wait for all"
    store.entries.append(entry(1))
    tokens.give("a")
    tokens.waits(2)
    assert len(store.said("admit")) == 1
    assert (len(store.said("dispatch")), len(other.said("dispatch"))) == (first + 1, others)


def test_no_wait_is_longer_than_until_a_pool_wants_a_round(store: FakeDispatch, lead: Lead, clock: Clock) -> None:
    _, tokens = lead(a=(store, Leads(TERM)))
    tokens.waits(1)
    assert tokens.asked[0][1] == pytest.approx(LOOK_S)


def test_a_pool_that_comes_to_be_led_is_looked_at_while_the_thread_waits(store: FakeDispatch, lead: Lead) -> None:
    other, leads = FakeDispatch(), Leads()
    thread, tokens = lead(a=(store, Leads(TERM)), b=(other, leads))
    tokens.waits(1)
    assert tokens.asked[0][0] == ["a"]
    assert other.calls == []
    leads.term = TERM
    thread.notice()
    tokens.waits(2)
    assert tokens.asked[1][0] == ["a", "b"]
    assert other.said("dispatch")


def test_a_pool_that_is_led_no_more_is_left_alone(store: FakeDispatch, lead: Lead) -> None:
    leads = Leads(TERM)
    _, tokens = lead(a=(store, leads), b=(FakeDispatch(), Leads(TERM)))
    tokens.waits(1)
    leads.term, made = None, len(store.calls)
    tokens.give("b")
    tokens.waits(2)
    assert tokens.asked[1][0] == ["b"]
    assert len(store.calls) == made


def test_when_a_store_is_away_its_pool_waits_and_the_others_go_on(
    store: FakeDispatch, lead: Lead, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store.error = StoreUnavailable("The store is away.")
    other = FakeDispatch()
    _, tokens = lead(a=(store, Leads(TERM)), b=(other, Leads(TERM)))
    tokens.waits(1)
    assert tokens.asked[0][0] == ["b"], "its tokens would make a hot loop"
    assert "The store is away. Trying again with growing pauses" in caplog.text
    store.error = None
    clock.now += 10
    tokens.give("b")
    tokens.waits(2)
    assert tokens.asked[1][0] == ["a", "b"]


def test_a_fault_in_one_pool_does_not_end_the_others(
    store: FakeDispatch, lead: Lead, caplog: pytest.LogCaptureFixture
) -> None:
    store.error = ZeroDivisionError("a bug")
    other = FakeDispatch()
    _, tokens = lead(a=(store, Leads(TERM)), b=(other, Leads(TERM)))
    tokens.waits(1)
    tokens.give("b")
    tokens.waits(2)
    assert len(other.said("dispatch")) == 2
    assert "Dispatch failed" in caplog.text


def test_tokens_with_nothing_behind_them_do_not_make_it_spin(store: FakeDispatch, lead: Lead) -> None:
    thread, tokens = lead(a=(store, Leads(TERM)))
    pauses: list[float] = []

    def wait(timeout: float | None = None) -> bool:
        pauses.append(timeout or 0.0)
        return False

    thread._noticed.wait = wait  # type: ignore[method-assign]
    for number in range(IDLE_ROUNDS + 4):
        tokens.give("a")
        tokens.waits(number + 2)
    assert pauses == sorted(pauses)
    assert len(pauses) == 4


def test_when_the_wait_fails_it_connects_anew(store: FakeDispatch, lead: Lead) -> None:
    _, tokens = lead(a=(store, Leads(TERM)))
    tokens.waits(1)
    tokens.give(StoreUnavailable("cut"))
    tokens.waits(2)
    assert [client.closed for client in tokens.clients] == [True, False]
    store.entries.append(entry(1))
    tokens.give("a")
    tokens.waits(3)
    assert store.said("admit")


def test_stopping_keeps_what_policies_hold_and_ends_the_wait(store: FakeDispatch, lead: Lead, clock: Clock) -> None:
    thread, tokens = lead(a=(store, Leads(TERM)))
    tokens.waits(1)
    store.entries.append(entry(1))
    tokens.give("a")
    tokens.waits(2)
    store.entries.append(entry(2))
    tokens.give("a")
    tokens.waits(3)
    kept = len(store.said("flush_policy"))
    thread.stop()
    assert not thread._thread.is_alive()
    assert len(store.said("flush_policy")) == kept + 1


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "queueapp.scheduler")
