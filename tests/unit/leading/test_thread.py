"""The thread that leads: which pool has a round after which event, and what ends its wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from queueapp.errors import Fenced, StoreMisconfigured, StoreUnavailable
from queueapp.scheduler.dispatching import LOOK_S, Dispatcher
from queueapp.scheduler.leading import IDLE_ROUNDS, DispatchThread
from queueapp.store.leader_records import Term
from tests.clock import Clock
from tests.model.own_policies import OWN
from tests.unit.leading.fake import TERM, FakeDispatch, entry


class Leads:
    """A leadership whose term the test gives and takes."""

    def __init__(self, term: Term | None = None) -> None:
        self.term = term
        self.fault = ""


class Tokens:
    """The blocking read: `give` lets it return; what it was asked is kept."""

    def __init__(self, clock: Clock) -> None:
        self.asked: list[tuple[list[str], float]] = []
        self.others: list[list[str]] = []
        """Pools that are led elsewhere, for each time that it was asked."""
        self.changed = threading.Condition()
        self.tokens: deque[str | Exception] = deque()
        self.clock = clock
        self.over = False
        self.clients: list[Closable] = []

    def give(self, token: str | Exception) -> None:
        with self.changed:
            self.tokens.append(token)
            self.changed.notify_all()

    def wait(
        self, client: Any, scheduler: str, led: Mapping[str, Any], others: Mapping[str, Any], timeout_s: float
    ) -> str | None:
        assert not client.closed
        if client not in self.clients:
            self.clients.append(client)
        with self.changed:
            self.asked.append(([*led], timeout_s))
            self.others.append([*others])
            self.changed.notify_all()
            woken = [store.woken for store in [*led.values(), *others.values()]]
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
        thread = DispatchThread("me", Closable, tokens.wait, clock=clock)
        for name, (store, leads) in pools.items():
            thread.add(Dispatcher(name, store, lambda store=store: store, own=lambda: OWN, clock=clock), leads)  # type: ignore[misc]  # mypy infers no lambda with a default
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


def test_a_fault_is_kept_with_the_lease_until_a_round_succeeds(store: FakeDispatch, lead: Lead, clock: Clock) -> None:
    store.error = ZeroDivisionError("contents of a job, perhaps")
    leads = Leads(TERM)
    _, tokens = lead(a=(store, leads), b=(FakeDispatch(), Leads(TERM)))
    tokens.waits(1)
    assert leads.fault == "ZeroDivisionError while it chose."
    store.error = StoreUnavailable("away")
    clock.now += 10
    tokens.give("b")
    tokens.waits(2)
    assert leads.fault, "who cannot ask does not know that it is mended"
    store.error = None
    clock.now += 10
    tokens.give("b")
    tokens.waits(3)
    assert leads.fault == ""


def test_tokens_with_nothing_behind_them_do_not_make_it_spin(store: FakeDispatch, lead: Lead) -> None:
    thread, tokens = lead(a=(store, Leads(TERM)))
    pauses: list[float] = []

    def wait(timeout: float | None = None) -> bool:
        pauses.append(timeout or 0.0)
        return False

    thread._noticed.wait = wait  # type: ignore[method-assign]  # stands in for it in this test
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


def test_a_pool_whose_admission_is_refused_still_hears_its_tokens(
    store: FakeDispatch, lead: Lead, caplog: pytest.LogCaptureFixture
) -> None:
    store.refuses["admit"] = StoreMisconfigured("The store is full.")
    store.entries.append(entry(1))
    _, tokens = lead(a=(store, Leads(TERM)))
    tokens.waits(1)
    assert tokens.asked[0][0] == ["a"]
    assert "The store is full. Trying again with growing pauses" in caplog.text
    tokens.give("a")
    tokens.waits(2)
    assert len(store.said("dispatch")) == 2


def test_a_store_that_is_away_is_waited_for_once_at_the_end(store: FakeDispatch, lead: Lead) -> None:
    other = FakeDispatch()
    thread, tokens = lead(a=(store, Leads(TERM)), b=(other, Leads(TERM)))
    tokens.waits(1)
    for one in (store, other):
        one.entries.append(entry(1))
    tokens.give("a")
    tokens.waits(2)
    tokens.give("b")
    tokens.waits(3)
    for one in (store, other):  # each has something to keep
        one.entries.append(entry(2))
    tokens.give("a")
    tokens.waits(4)
    tokens.give("b")
    tokens.waits(5)
    store.error = other.error = StoreUnavailable("away")
    made = len(store.said("flush_policy")), len(other.said("flush_policy"))
    thread.stop()
    assert (len(store.said("flush_policy")), len(other.said("flush_policy"))) == (made[0] + 1, made[1])


def test_a_token_of_a_pool_that_was_dropped_meanwhile_is_nobodys(store: FakeDispatch, lead: Lead) -> None:
    other = FakeDispatch()
    thread, tokens = lead(a=(store, Leads(TERM)), b=(other, Leads(TERM)))
    tokens.waits(1)
    thread.drop("a")
    tokens.give("a")
    tokens.waits(2)
    assert not thread.broken


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_broke_says_so(store: FakeDispatch, lead: Lead, monkeypatch: pytest.MonkeyPatch) -> None:
    thread, tokens = lead(a=(store, Leads(TERM)))
    tokens.waits(1)

    def fault() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(thread, "_turn", fault)
    tokens.give("a")
    thread._thread.join(30)
    assert thread.broken


def test_the_good_bye_of_a_leader_elsewhere_is_passed_on(store: FakeDispatch, lead: Lead) -> None:
    leads, told = Leads(), threading.Event()
    thread, tokens = lead(a=(store, leads))
    doubted: list[str] = []

    def doubt(pool: str) -> None:
        doubted.append(pool)
        leads.term = TERM
        thread.notice()
        told.set()

    thread.on_doubt = doubt
    tokens.waits(1)
    assert tokens.others[0] == ["a"]
    assert tokens.asked[0][0] == []
    tokens.give("a")
    assert told.wait(10)
    tokens.waits(2)
    assert doubted == ["a"]
    assert (tokens.asked[1][0], tokens.others[1]) == (["a"], [])
    assert store.said("dispatch")


def test_a_refused_write_makes_the_loop_look_at_its_lease(store: FakeDispatch, lead: Lead) -> None:
    store.error = Fenced("another term")
    thread, tokens = lead(a=(store, Leads(TERM)))
    tokens.waits(1)
    doubted: list[str] = []
    thread.on_doubt = doubted.append
    store.error = Fenced("another term")
    thread.notice()
    tokens.give("a")
    tokens.waits(2)
    assert doubted == ["a"]
