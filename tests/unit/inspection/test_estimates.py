"""When a job starts or ends: from facts that are given, so that the arithmetic, and its honesty, can be looked at."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from queueapp.inspection.estimates import Estimate, estimate_of, in_words
from queueapp.inspection.reason import Kind, Reader, moment_of
from queueapp.inspection.reasons import reasons_of, sentence_of
from queueapp.states import State
from queueapp.store.views import JobRecord
from queueapp.store.wait_facts import Holder, KeyFacts, ScopeFacts, WaitFacts

NOW_MS = 1_800_000_000_000
RECORD = JobRecord(id="x" * 22, state=State.PENDING, task="shop.tasks.pay", tenant="acme", lane="main")
WAITING = WaitFacts(now_ms=NOW_MS, record=RECORD, workers=1, place=9, lane_turns=2, pending=100)
WHOLE = Reader(pool="default", public_id=lambda job_id: f"p.{job_id}")


def said(facts: WaitFacts, reader: Reader = WHOLE) -> Estimate:
    estimate = estimate_of(facts, reasons_of(facts, reader), reader)
    assert estimate is not None
    return estimate


def seconds(estimate: Estimate) -> tuple[float | None, float | None]:
    """How long after now the two moments are."""
    now = moment_of(NOW_MS)
    assert now is not None
    earliest, latest = estimate.earliest, estimate.latest
    return (
        None if earliest is None else (earliest - now).total_seconds(),
        None if latest is None else (latest - now).total_seconds(),
    )


def test_by_the_pool_s_pace_where_its_place_in_the_pool_is_known() -> None:
    facts = replace(WAITING, ahead=29, started=60, window_ms=90_000)
    assert seconds(said(facts)) == (45.0, 45.0)
    assert said(facts).basis == (
        "29 jobs before it, and 60 jobs of the pool started in the last 1 min 30 s; "
        "it holds as long as that goes on and nothing comes before it"
    )


def test_between_two_moments_where_it_is_not() -> None:
    facts = replace(WAITING, ahead=50, ahead_exact=False, started=60, window_ms=60_000)
    assert seconds(said(facts)) == (51.0, 100.0)
    assert said(facts).basis.startswith("50 to 99 jobs before it, and 60 jobs of the pool")


@pytest.mark.parametrize("facts", [{"ahead": 50, "ahead_exact": False}, {"ahead": None}])
def test_by_its_tenant_s_pace_where_its_lane_is_the_tenant_s_only_one(facts: dict[str, Any]) -> None:
    alone = replace(WAITING, lane_turns=1, tenant_started=5, started=60, window_ms=60_000, **facts)
    assert seconds(said(alone)) == (120.0, 120.0)
    assert said(alone).basis.startswith("9 jobs of its tenant before it, and 5 jobs of the tenant started in the last")
    for other in ({"lane_turns": 2}, {"others": 1}, {"tenant_started": 0}, {"place": None}, {"place_exact": False}):
        assert not said(replace(alone, **other)).basis.startswith("9 jobs of its tenant")


def test_at_its_tenant_s_ceiling_too() -> None:
    full = ScopeFacts(limit=2, used=2)
    facts = replace(WAITING, tenant=full, lane_turns=1, tenant_started=5, window_ms=60_000)
    assert seconds(said(facts)) == (120.0, 120.0)
    for other in (replace(facts, lane_turns=2), replace(facts, lane=full), replace(facts, workers=0)):
        assert seconds(said(other)) == (None, None)


def test_nothing_is_made_up() -> None:
    for facts, basis in (
        (replace(WAITING, ahead=3), "the pool's pace is not known yet"),
        (replace(WAITING, ahead=3, window_ms=65_000), "no job of the pool started in the last 1 min 5 s"),
        (replace(WAITING, ahead=3, window_ms=65_000, started=-1), "no job of the pool started in the last 1 min 5 s"),
        (replace(WAITING, ahead=None), "nobody can say how many jobs start before it"),
        (replace(WAITING, pool=ScopeFacts(limit=0)), "nobody can say when the pool's ceiling is raised"),
        (replace(WAITING, suspect=True), "it depends on when a worker holds nothing else"),
    ):
        assert seconds(said(facts)) == (None, None)
        assert said(facts).basis == basis
        assert in_words(said(facts)) == f"When it starts is unknown: {basis}"


def test_a_running_job_ends_when_its_task_usually_does() -> None:
    record = replace(RECORD, state=State.ACTIVE, leased_ms=NOW_MS - 1_000, worker="w.1")
    facts = WaitFacts(now_ms=NOW_MS, record=record, lease_until_ms=NOW_MS + 9_000, usual_ms=4_000)
    assert seconds(said(facts)) == (3.0, 3.0)
    assert seconds(said(replace(facts, begun=False))) == (4.0, None)
    assert seconds(said(replace(facts, usual_ms=900))) == (None, None)
    assert said(replace(facts, usual_ms=900)).basis.startswith("it has run for longer than usual (jobs of its task")
    assert seconds(said(replace(facts, lease_until_ms=NOW_MS))) == (None, None)


def test_in_words() -> None:
    earliest = moment_of(NOW_MS)
    assert earliest is not None
    later = earliest + timedelta(minutes=2)
    words = "2027-01-15 08:00:00 UTC"
    for latest, text in (
        (None, f"Starts not before {words}: so"),
        (earliest, f"Starts about {words}: so"),
        (later, f"Starts between {words} and 2027-01-15 08:02:00 UTC: so"),
    ):
        assert in_words(Estimate(of="start", earliest=earliest, latest=latest, basis="so")) == text


def test_what_is_not_known_exactly_is_not_said_exactly() -> None:
    facts = replace(WAITING, place_exact=False, ahead=0, ahead_exact=False)
    assert sentence_of(reasons_of(facts, WHOLE)) == "It waits for its turn: it is 10th or later in its lane."
    assert sentence_of(reasons_of(replace(facts, ahead=3), WHOLE)) == (
        "It waits for its turn: it is 10th or later in its lane, and at least 3 jobs of the pool start before it under "
        "the policy tiered."
    )
    assert reasons_of(replace(facts, ahead_exact=True), WHOLE)[0].kind is Kind.NEXT


def test_a_key_names_its_text_to_those_who_may_see_contents_and_holders_of_one_s_own_tenants() -> None:
    holders = (Holder(id="a", tenant="globex"), Holder(id="b", tenant="acme"))
    key = KeyFacts(digest="d", text="customer:42", limit=2, used=2, holders=holders)
    facts = replace(WAITING, keys=(KeyFacts(digest="e", text="free", limit=2, used=1), key))
    for reader, text, held_by in (
        (WHOLE, "one of its concurrency keys is full: 2 of 2 running, held by p.a, p.b", ("p.a", "p.b")),
        (
            replace(WHOLE, contents=True, tenants={"acme"}),
            "its concurrency key 'customer:42' is full, held among others by p.b",
            ("p.b",),
        ),
        (replace(WHOLE, tenants={"initech"}), "one of its concurrency keys is full", ()),
    ):
        reasons = reasons_of(facts, reader)
        assert (reasons[0].kind, reasons[0].text, reasons[0].held_by) == (Kind.KEY_FULL, text, held_by)
        assert sentence_of(reasons) == f"{text[0].upper()}{text[1:]}."
        assert said(facts, reader).basis == "it depends on when the jobs that hold its place end"


def test_a_key_that_has_just_become_free_is_said_to_be() -> None:
    facts = replace(WAITING, aside=True, keys=(KeyFacts(digest="d", text="t", limit=None, used=9),))
    assert sentence_of(reasons_of(facts, WHOLE)) == (
        "A slot of its concurrency key is free again, and those that wait for it are offered it in turn."
    )
