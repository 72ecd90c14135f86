"""One pool under its leader: who does what after which event, never after which time.

What dispatch does to jobs is tested with the store (`tests/model/test_scheduled_parity.py`, `tests/integration`).
"""

from __future__ import annotations

import threading

import pytest

from queueapp.conf import settings
from queueapp.errors import Fenced, StoreMisconfigured, StoreUnavailable
from queueapp.scheduler.dispatching import CALLS_A_ROUND, FLUSH_S, FULL_S, READ_AGAIN_S, REFUSED_S, Dispatcher
from queueapp.store.configuration import PoolConf
from queueapp.store.leader_records import Dispatched, IngressEntry
from tests.clock import Clock
from tests.unit.leading.fake import NEXT_TERM, TERM, FakeDispatch, entry, lane


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
    assert [call[0] for call in store.calls] == ["in_force"]


def test_a_change_of_the_configuration_is_seen_with_its_token(store: FakeDispatch, leader: Dispatcher) -> None:
    store.conf = PoolConf(policy="tiered")
    leader.round(TERM, told=True)
    store.conf = PoolConf(policy="own_ring", dispatch="scheduled", window=5)
    leader.round(TERM, told=False)
    assert not store.said("dispatch")
    leader.round(TERM, told=True)
    assert store.said("dispatch") == [("dispatch", "n1", 0, 5, [])]


def test_what_was_ranked_for_the_order_before_is_refused_and_ranked_anew(
    store: FakeDispatch, leader: Dispatcher
) -> None:
    store.entries.append(entry(1))
    leader.round(TERM, told=True)
    store.order_since = 2  # another policy came and went, and the name is the same again
    store.entries.append(entry(2))
    store.calls.clear()
    assert leader.round(TERM, told=False), "there is more to do: with the order as it is now"
    assert not store.said("dispatch")
    store.entries.append(entry(2))
    leader.round(TERM, told=False)
    assert [call[0] for call in store.calls][3:7] == ["in_force", "read_policy", "mirror", "read_ingress"]
    assert len(store.said("admit")) == 2
    assert store.said("dispatch")


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


def test_a_full_store_takes_no_admission_and_is_dispatched_on(store: FakeDispatch, leader: Dispatcher) -> None:
    """Only what runs and ends makes room again."""
    full = store.refuses["admit"] = StoreMisconfigured("The store is full.")
    store.entries.append(entry(1))
    leader.round(TERM, told=True)
    assert store.said("dispatch")
    assert [leader.refused] == [full]
    del store.refuses["admit"]
    store.entries.append(entry(1))
    leader.round(TERM, told=True)
    assert [leader.refused] == [None]
    assert len(store.said("mirror")) == 1, "what was refused changed nothing"


def test_a_full_store_keeps_nothing_of_the_policy_and_is_asked_again_in_pauses(
    store: FakeDispatch, leader: Dispatcher, clock: Clock
) -> None:
    store.refuses["flush_policy"] = StoreMisconfigured("The store is full.")
    for number in range(3):
        store.entries.append(entry(number))
        leader.round(TERM, told=True)
        clock.now += FLUSH_S
    assert len(store.said("flush_policy")) == 1
    assert len(store.said("mirror")) == 1
    store.refuses.clear()
    clock.now += REFUSED_S
    leader.round(TERM, told=False)
    assert store.kept[0] == 1, "nothing was forgotten"


@pytest.mark.parametrize("policy", ["own_ring", "fifo"])
def test_a_store_with_more_to_move_is_asked_again_at_once(store: FakeDispatch, leader: Dispatcher, policy: str) -> None:
    store.conf = PoolConf(policy=policy, dispatch="scheduled", window=10)
    store.answers.extend(Dispatched(jobs=0, room=10, runnable=True, more=True) for _ in range(CALLS_A_ROUND + 1))
    assert leader.round(TERM, told=True)
    assert leader.busy, "a token that led to this was none in vain"


def test_a_round_that_does_not_end_holds_up_nobody(
    store: FakeDispatch, leader: Dispatcher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("queueapp.scheduler.dispatching.LET_GO_S", 0.01)
    inside, over = threading.Event(), threading.Event()

    def hang() -> tuple[PoolConf, int]:
        inside.set()
        over.wait(30)
        return store.conf, 1

    store.in_force = hang  # type: ignore[method-assign]  # stands in for it in this test
    thread = threading.Thread(target=leader.round, args=(TERM,), kwargs={"told": True})
    thread.start()
    inside.wait(30)
    assert leader.let_go()
    over.set()
    thread.join(30)
    assert "A round does not end" in caplog.text
