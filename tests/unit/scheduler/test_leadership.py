"""Leadership by an injected clock: who leads, for how long it trusts that, and what it tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queueapp.errors import Fenced, StoreUnavailable
from queueapp.scheduler.leadership import Leadership
from queueapp.store.leader_records import Term
from tests.clock import Clock
from tests.unit.scheduler.leases import FakeLead


def candidate(
    lead: FakeLead,
    clock: Clock,
    name: str,
    channel: Callable[[], str] | None = None,
    *,
    retry_ms: int = 1000,
    doubt: Callable[[], None] = lambda: None,
) -> Leadership:
    numbers = iter(range(100))
    return Leadership(
        "default",
        lead,
        name,
        ttl_ms=5000,
        renew_ms=1666,
        retry_ms=retry_ms,
        channel=channel,
        doubt=doubt,
        clock=clock,
        nonce=lambda: f"{name}-{next(numbers)}",
    )


def leads(leadership: Leadership) -> bool:
    return leadership.term is not None


def test_a_free_lease_is_taken_and_renewed_three_times_in_its_length(lead: FakeLead, clock: Clock) -> None:
    one = candidate(lead, clock, "one")
    assert not leads(one)
    one.tick()
    assert leads(one)
    assert one.next_at == pytest.approx(clock.now + 1.666)
    for _ in range(10):
        clock.now = one.next_at
        one.tick()
        assert leads(one)
    assert lead.granted == ["one-0"], "all of it is one term"


def test_a_fault_rides_with_the_renewal(lead: FakeLead, clock: Clock) -> None:
    first = candidate(lead, clock, "first")
    first.tick()
    first.fault = "ZeroDivisionError while it chose."
    clock.now = first.next_at
    first.tick()
    assert lead.told_fault == first.fault


def test_a_standby_tries_again_and_follows(lead: FakeLead, clock: Clock) -> None:
    one, two = candidate(lead, clock, "one"), candidate(lead, clock, "two")
    one.tick()
    two.tick()
    assert not leads(two)
    assert clock.now + 0.9 <= two.next_at <= clock.now + 1.1
    clock.now += 5.01
    two.tick()
    assert leads(two)
    assert not leads(one), "its trust window ended before the lease did"


def test_trust_counts_from_before_the_call_was_sent(lead: FakeLead, clock: Clock) -> None:
    """A reply that took 4 s says nothing about the last second of the lease."""
    one = candidate(lead, clock, "one")
    lead.takes_s = 4.0
    one.tick()
    assert leads(one)
    clock.now += 0.6  # 4.6 s after it was sent, of which 4.5 are trusted
    assert not leads(one)
    assert clock.now < lead.until + 4.0


def test_a_fenced_leader_steps_down_at_once_and_comes_back_as_another_term(lead: FakeLead, clock: Clock) -> None:
    one, two = candidate(lead, clock, "one"), candidate(lead, clock, "two")
    one.tick()
    clock.now += 6
    two.tick()
    one.tick()
    assert not leads(one)
    clock.now += 6
    one.tick()
    assert leads(one)
    assert lead.granted == ["one-0", "two-0", "one-1"]


def test_a_cut_off_leader_stops_by_itself_and_renews_when_nobody_took_it(lead: FakeLead, clock: Clock) -> None:
    one = candidate(lead, clock, "one")
    one.tick()
    lead.away = True
    clock.now += 2
    with pytest.raises(StoreUnavailable):
        one.tick()
    assert leads(one)
    clock.now += 3
    assert not leads(one)
    lead.away = False
    one.tick()
    assert leads(one)
    assert lead.granted == ["one-0"]


def test_a_grant_whose_reply_was_lost_is_the_same_term(lead: FakeLead, clock: Clock) -> None:
    one = candidate(lead, clock, "one")
    lead.lose_replies = 1
    with pytest.raises(StoreUnavailable):
        one.tick()
    assert not leads(one)
    one.tick()
    assert leads(one)
    assert lead.granted == ["one-0"]


def test_release(lead: FakeLead, clock: Clock) -> None:
    one, two = candidate(lead, clock, "one"), candidate(lead, clock, "two")
    one.tick()
    one.release()
    assert not leads(one)
    two.tick()
    assert leads(two)
    one.release()
    assert lead.nonce == "two-0", "a second release takes nothing from anybody"


def test_a_standby_looks_ten_times_a_second_at_a_leader_whose_death_would_show(lead: FakeLead, clock: Clock) -> None:
    lead.channels = {"one"}
    one = candidate(lead, clock, "one", lambda: "one")
    two = candidate(lead, clock, "two", lambda: "two")
    one.tick()
    two.tick()
    assert clock.now + 0.08 <= two.next_at <= clock.now + 0.12
    lead.channels = set()
    clock.now = two.next_at
    two.tick()
    assert not leads(two), "once is not enough"
    assert two.next_at == pytest.approx(clock.now + 0.03)
    clock.now = two.next_at
    two.tick()
    assert leads(two)
    assert lead.granted == ["one-0", "two-0"]


def test_without_presence_nobody_takes_over_before_the_lease_ends(lead: FakeLead, clock: Clock) -> None:
    one, two = candidate(lead, clock, "one", lambda: "one"), candidate(lead, clock, "two")
    one.tick()
    for _ in range(4):
        two.tick()
        clock.now = two.next_at
    assert not leads(two)
    assert lead.asked[1] - lead.asked[0] >= 0.0
    assert lead.asked[-1] - lead.asked[-2] >= 0.9, "it looks no more often than it would without"


def test_a_standby_asks_when_the_lease_ends(lead: FakeLead, clock: Clock) -> None:
    one, two = candidate(lead, clock, "one"), candidate(lead, clock, "two")
    one.tick()
    clock.now += 4.7
    two.tick()
    assert two.next_at == pytest.approx(clock.now + 0.3, abs=0.03)


def test_a_candidate_waits_a_moment_for_its_own_subscription(lead: FakeLead, clock: Clock) -> None:
    channel = ""
    one = candidate(lead, clock, "one", lambda: channel)
    one.tick()
    assert lead.asked == []
    channel = "one"
    clock.now = one.next_at
    one.tick()
    assert leads(one)
    assert lead.channel == "one"


def test_who_may_not_subscribe_leads_unwatched(lead: FakeLead, clock: Clock) -> None:
    one = candidate(lead, clock, "one", lambda: "")
    one.tick()
    clock.now += 1.01
    one.tick()
    assert leads(one)
    assert lead.channel == ""


def test_each_renewal_says_whether_there_is_a_subscription(lead: FakeLead, clock: Clock) -> None:
    """A leader whose presence alone was cut must not be taken for dead: it says so before anybody looks twice."""
    channel = "one"
    lead.channels = {"one"}
    one, two = candidate(lead, clock, "one", lambda: channel), candidate(lead, clock, "two", lambda: "two")
    one.tick()
    lead.channels, channel = set(), ""
    two.tick()
    one.hurry()
    one.tick()
    clock.now = two.next_at
    two.tick()
    assert leads(one)
    assert lead.granted == ["one-0"]


def test_its_own_subscription_concerns_a_leader_and_who_waits_for_it_alone(lead: FakeLead, clock: Clock) -> None:
    channel = ""
    one = candidate(lead, clock, "one", lambda: channel)
    two, three = candidate(lead, clock, "two", lambda: "two"), candidate(lead, clock, "three", lambda: "three")
    one.tick()
    channel = "one"
    lead.channels = {"one"}
    one.presence_changed()
    one.tick()
    assert leads(one), "it had waited for it"
    two.tick()
    asked = len(lead.asked)
    for _ in range(10):
        two.presence_changed()
        two.tick()
    assert len(lead.asked) == asked, "a standby has nothing to say"
    three.presence_changed()
    three.tick()
    assert len(lead.asked) == asked + 1, "who has not asked yet asks when it is time"
    channel = ""
    one.presence_changed()
    one.tick()
    assert lead.channel == "", "a leader says so at once"


def test_who_was_fenced_asks_again_before_the_next_lease_can_have_ended(lead: FakeLead, clock: Clock) -> None:
    one, two = candidate(lead, clock, "one", retry_ms=60_000), candidate(lead, clock, "two")
    one.tick()
    clock.now += 6
    two.tick()
    one.tick()
    assert not leads(one)
    assert one.next_at <= clock.now + 5


def test_a_term_whose_release_was_not_answered_is_never_asked_for_again(lead: FakeLead, clock: Clock) -> None:
    """The store may have let it go: it refuses that nonce for good."""
    one = candidate(lead, clock, "one")
    one.tick()
    lead.away = True
    with pytest.raises(StoreUnavailable):
        one.release()
    lead.away = False
    clock.now += 5.1
    one.tick()
    assert leads(one)
    assert lead.granted == ["one-0", "one-1"]


def test_a_candidate_that_is_refused_as_fenced_comes_back_under_another_nonce(lead: FakeLead, clock: Clock) -> None:
    one, acquire = candidate(lead, clock, "one"), lead.lead_acquire

    def refusing(owner: str, nonce: str, ttl_ms: int, *, channel: str = "", watch: bool = False) -> Term:
        if nonce == "one-0":
            raise Fenced
        return acquire(owner, nonce, ttl_ms, channel=channel, watch=watch)

    lead.lead_acquire = refusing  # type: ignore[method-assign]  # the store remembers that term
    one.tick()
    assert not leads(one)
    clock.now = one.next_at
    one.tick()
    assert leads(one)


def test_a_subscription_that_the_store_does_not_see_is_doubted(lead: FakeLead, clock: Clock) -> None:
    doubts: list[float] = []
    channel = ""
    one = candidate(lead, clock, "one", lambda: channel, doubt=lambda: doubts.append(clock()))
    clock.now += 1.1
    one.tick()
    assert doubts == [], "who tells none is not missed"
    channel = "one"
    one.hurry()
    one.tick()
    assert doubts == [clock()]
    lead.channels = {"one"}
    one.hurry()
    one.tick()
    assert len(doubts) == 1
