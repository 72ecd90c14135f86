"""Jobs that a package hands over for itself, over a real store: one job however often, and no refusal but a fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from queueapp import Debounce, Singleton, task, telemetry
from queueapp.errors import InvalidOption, StoreUnavailable, UnknownTenant
from queueapp.inspection.moving import moving_to
from queueapp.names import SYSTEM_TENANT
from queueapp.policies.registry import DIRECT
from queueapp.producer import rows
from queueapp.producer.handover import Order, _prepared, hand_over, public_id, standing, withdraw
from queueapp.producer.options import UnknownQueue
from queueapp.producer.preparation import Prepared
from queueapp.states import Outcome, State
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.reads import Reads
from queueapp.store.records import Matched, NewJob
from queueapp.store.store import Store
from tests.integration.conftest import record, until
from tests.integration.test_syncmatch import hits, working
from tests.working import work

NOW = 1_900_000_000_000
RAN: list[tuple[Any, int]] = []
"""(argument, fence) of each body that came to its end."""
GATE = threading.Event()


@task(takes_context=True, max_attempts=1, max_crashes=1)
def note(context: Any, given: Any = None) -> Any:
    """Ends when the test lets it."""
    GATE.wait(10)
    RAN.append((given, int(context.fence)))
    return given


@task
def breaks() -> None:
    raise ValueError("it broke")


@task(debounce=Debounce("all", period=1))
def debounced() -> None: ...


@task(singleton=Singleton("all"))
def single() -> None: ...


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    RAN.clear()
    GATE.set()
    yield
    GATE.set()


def order(given: Any = None, *, key: str = "one", at_ms: int = NOW, **values: Any) -> Order:
    bound = values.pop("job", None) or note.using(tenant="acme").bind(given)
    return Order(job=bound, key=key, at_ms=at_ms, **values)


def id_of(one: Order) -> str:
    return public_id("default", one.key, one.at_ms)


class TestTheSameOrder:
    """Whoever died in between does it once more."""

    def test_while_its_job_waits(self, store: Store, reads: Reads) -> None:
        assert hand_over([order(1), order(1)]) == [None, None]
        assert hand_over([order(1)]) == [None]
        assert work() == 1
        assert RAN == [(1, 1)]
        assert record(reads, id_of(order())).outcome is Outcome.COMPLETED

    def test_while_it_runs_and_after_it_has_ended(self, store: Store, reads: Reads) -> None:
        GATE.clear()
        with working():
            hand_over([order(1, queued=True)])
            until(lambda: record(reads, id_of(order())).state is State.ACTIVE)
            assert hand_over([order(1, queued=True)]) == [None]
            GATE.set()
            until(lambda: record(reads, id_of(order())).state is State.ENDED)
            assert hand_over([order(1, queued=True)]) == [None]
        assert RAN == [(1, 2)]

    def test_by_one_who_began_it_here_and_one_who_was_faster(self, store: Store, reads: Reads) -> None:
        """Whoever does once more what another is about to do: two bodies, of which the one that counts is above."""
        GATE.clear()
        with working(slots=2) as line:
            hand_over([order(1, queued=True)])
            until(lambda: record(reads, id_of(order())).state is State.ACTIVE and line.quiet)
            before = hits()
            assert hand_over([order(1)]) == [None]
            assert hits() == before + 1
            GATE.set()
            until(lambda: len(RAN) == 2)
        assert sorted(RAN) == [(1, 1), (1, 2)]
        assert record(reads, id_of(order())).outcome is Outcome.COMPLETED

    def test_with_other_arguments_or_another_trace(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever hands it over anew may be a later release, and is part of another trace."""
        hand_over([order(1)])
        monkeypatch.setattr(telemetry, "active", lambda: True)
        monkeypatch.setattr(telemetry, "carrier", lambda: {"traceparent": "00-another"})
        assert hand_over([order(1)]) == [None]
        assert hand_over([order(2), order(3, key="two")]) == [None, None]
        monkeypatch.undo()
        work()
        assert RAN == [(1, 1), (3, 1)]

    def test_belongs_to_the_trace_that_it_names(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only while somebody wants to know."""
        named = {"traceparent": "00-of-the-package"}
        monkeypatch.setattr(telemetry, "carrier", lambda: {"traceparent": "00-of-the-caller"})
        found = []
        for number, (active, trace) in enumerate([(True, named), (True, None), (False, named)]):
            monkeypatch.setattr(telemetry, "active", lambda active=active: active)
            made = _prepared(order(1, key=f"k{number}", trace=trace))
            assert isinstance(made, Prepared)
            found.append(dict(telemetry.carried(made.job.payload)))
        assert found == [named, {"traceparent": "00-of-the-caller"}, {}]

    def test_is_another_one_with_another_key_or_moment(self, store: Store) -> None:
        hand_over([order(1), order(2, key="two"), order(3, at_ms=NOW + 1)])
        assert work() == 3


class TestNothingIsRefused:
    """Nobody is there to be told."""

    def test_above_a_rate_it_is_parked(self, store: Store, reads: Reads) -> None:
        store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=60_000))])
        orders = [order(number, key=str(number)) for number in range(3)]
        assert hand_over(orders) == [None] * 3
        assert [record(reads, id_of(one)).state for one in orders] == [State.PENDING, State.BACKLOG, State.BACKLOG]
        assert hand_over(orders[1:]) == [None] * 2
        assert standing("default", [(one.key, one.at_ms) for one in orders]) == [("there", "")] * 3

    @pytest.mark.parametrize("of_pool", [True, False])
    def test_a_full_backlog_takes_it(self, store: Store, of_pool: bool) -> None:
        limits = (
            {"pool": PoolConf(backlog_limit=1)}
            if of_pool
            else {"scopes": [ScopeLimits(tenant="acme", backlog_limit=1)]}
        )
        store.configure(1, **limits)
        assert hand_over([order(number, key=str(number)) for number in range(3)]) == [None] * 3
        assert work() == 3

    def test_a_rate_that_was_set_in_that_very_moment_parks_it_and_no_fence_is_given_twice(
        self, store: Store, reads: Reads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its body began at once, unheard: the lease that comes later must be another one."""
        match = Store.match
        GATE.clear()

        def late(self: Store, job: NewJob, *arguments: Any) -> Matched:
            store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=200))])
            store.enqueue([NewJob(id="f" * 22, task="tests.none", tenant="acme", payload=b"{}", fingerprint="")])
            store.cancel(["f" * 22])
            return match(self, job, *arguments)

        with working():
            with monkeypatch.context() as patch:
                patch.setattr(Store, "match", late)
                assert hand_over([order(1)]) == [None]
            assert record(reads, id_of(order())).state is State.BACKLOG
            GATE.set()
            until(lambda: len(RAN) == 1)
            until(lambda: store.backlog_promote(1).pending or record(reads, id_of(order())).state is not State.BACKLOG)
            until(lambda: len(RAN) == 2)
            until(lambda: record(reads, id_of(order())).outcome is Outcome.COMPLETED)
        assert RAN == [(1, 1), (1, 2)]


class TestFaults:
    def test_an_unknown_pool_is_told_of_that_order_alone(self, store: Store, db: None) -> None:
        nowhere = order(job=note.using(tenant="acme", queue_name="nowhere").bind(1))
        error, fine = hand_over([nowhere, order(2, key="two")])
        assert isinstance(error, UnknownQueue)
        assert fine is None
        assert work() == 1

    def test_an_unknown_tenant_is_refused_where_those_are_and_the_system_is_none(self, store: Store, db: None) -> None:
        with override_settings(DUCTOR={**settings.DUCTOR, "UNKNOWN_TENANTS": "reject"}):
            rows.forget()
            error, fine = hand_over([order(1), order(2, key="two", system=True)])
        assert isinstance(error, UnknownTenant)
        assert fine is None

    @pytest.mark.parametrize(
        ("given", "option"),
        [
            (debounced, "debounce"),
            (single, "singleton"),
            (note.using(idempotency_key="k"), "idempotency_key"),
        ],
    )
    def test_what_another_job_might_stand_for_is_refused(self, store: Store, given: Any, option: str) -> None:
        [error] = hand_over([order(job=given.bind())])
        assert isinstance(error, InvalidOption)
        assert f"has {option}=" in str(error)
        assert store.peek() == []

    def test_a_store_that_is_away_is_told_of_each_that_would_go_there(self) -> None:
        with override_settings(DUCTOR={**settings.DUCTOR, "REDIS_URL": "redis://127.0.0.1:1/0"}):
            first, second = hand_over([order(1), order(2, key="two")])
        assert isinstance(first, StoreUnavailable)
        assert isinstance(second, StoreUnavailable)


def test_the_system_has_a_tenant_of_its_own_whatever_the_task_and_the_place_say(store: Store, reads: Reads) -> None:
    one = order(job=note.using(tenant="acme").bind(1), system=True)
    hand_over([one])
    assert record(reads, id_of(one)).tenant == SYSTEM_TENANT


@pytest.mark.parametrize("policy", sorted(DIRECT))
def test_its_moment_moves_nobody_up_or_down_the_line(store: Store, policy: str) -> None:
    """A timer's job has a moment of the future in its id, what is handed over again one of the past."""
    store.configure(1, pool=PoolConf(policy=policy))
    moments = [NOW, NOW + 10**10, NOW - 10**12, NOW + 1, NOW - 1]
    for number, at_ms in enumerate(moments):
        hand_over([order(number, at_ms=at_ms)])
    work()
    assert [given for given, _ in RAN] == list(range(len(moments)))


class TestBegunHere:
    """In a free slot of the very process that hands over."""

    def test_one_alone_begins_at_once_whatever_its_tier(self, store: Store, reads: Reads) -> None:
        with working() as line:
            before = hits()
            hand_over([order(1, tier="continue")])
            assert hits() == before + 1
            assert record(reads, id_of(order())).worker == line.worker
            until(lambda: record(reads, id_of(order())).outcome is Outcome.COMPLETED)
        assert RAN == [(1, 1)]

    def test_several_or_one_that_is_to_take_its_turn_do_not(self, store: Store, reads: Reads) -> None:
        with working():
            before = hits()
            hand_over([order(1, queued=True)])
            hand_over([order(2, key="two"), order(3, key="three")])
            assert hits() == before
            until(lambda: len(RAN) == 3)

    def test_one_with_a_moment_of_its_own_waits_for_it(self, store: Store, reads: Reads) -> None:
        one = order(job=note.using(tenant="acme", delay=600).bind(1))
        with working():
            hand_over([one])
            assert record(reads, id_of(one)).state is State.SCHEDULED


class TestStanding:
    def test_of_each_order(self, store: Store) -> None:
        done, broken, off, waits = (order(key=key) for key in ("done", "broken", "off", "waits"))
        broken = order(key="broken", job=breaks.using(tenant="acme").bind())
        hand_over([done, broken])
        work()
        hand_over([off, waits])
        store.cancel([id_of(off)[-22:]])
        asked = [(one.key, one.at_ms) for one in (done, broken, off, waits)]
        (_, (failed, text), *rest) = standing("default", [*asked, ("never", NOW)])
        assert standing("default", asked[:1]) == [("completed", "")]
        assert failed == "failed"
        assert text.strip().endswith("ValueError: it broke")
        assert rest == [("cancelled", ""), ("there", ""), ("gone", "")]
        assert standing("default", []) == []

    def test_one_that_expired_has_failed(self, store: Store) -> None:
        one = order(job=note.using(tenant="acme", expires_after=0.001).bind())
        hand_over([one])
        until(lambda: store.promote_due().expired)
        assert standing("default", [(one.key, one.at_ms)]) == [("failed", "its job ended as expired")]

    def test_it_is_followed_to_another_pool(self, store: Store) -> None:
        """An operator moved it: that is no end."""
        one = order(1)
        hand_over([one])
        with override_settings(DUCTOR={**settings.DUCTOR, "POOLS": {"other": {}}}):
            assert moving_to("other")("default", [id_of(one)[-22:]]) == ["moved"]
            assert standing("default", [(one.key, one.at_ms)]) == [("there", "")]
            assert withdraw("default", [(one.key, one.at_ms)], running=False) == [True]
            assert standing("default", [(one.key, one.at_ms)]) == [("cancelled", "")]


class TestWithdraw:
    def test_what_has_not_begun_will_not_run(self, store: Store) -> None:
        orders = [order(number, key=str(number)) for number in range(3)]
        hand_over(orders)
        asked = [(one.key, one.at_ms) for one in orders]
        assert withdraw("default", [*asked[:2], ("never", NOW)], running=False) == [True, True, False]
        assert work() == 1
        assert withdraw("default", asked, running=True) == [False] * 3
        assert withdraw("default", [], running=True) == []

    def test_what_runs_is_told_only_if_that_is_wanted(self, store: Store, reads: Reads) -> None:
        GATE.clear()
        with working():
            hand_over([order(1, queued=True)])
            until(lambda: record(reads, id_of(order())).state is State.ACTIVE)
            assert withdraw("default", [("one", NOW)], running=False) == [False]
            assert not record(reads, id_of(order())).cancelling
            assert withdraw("default", [("one", NOW)], running=True) == [False]
            assert record(reads, id_of(order())).cancelling
            GATE.set()
            until(lambda: record(reads, id_of(order())).outcome is Outcome.CANCELLED)
