"""Words for the tests of a pool whose policy the store does not know: a leader, its picks, and what it was told."""

from __future__ import annotations

from collections.abc import Sequence

from queueapp.store.configuration import ScopeLimits
from queueapp.store.leader_records import Dispatched, MirrorLane, Term
from tests.lua.harness import Shard

POLICY = "drr"


def lead(shard: Shard, **options: object) -> Term:
    return shard.schedule(policy=POLICY, **options)


def pick(shard: Shard, term: Term, *names: str, window: int = 1_000) -> Dispatched:
    """`"acme"` is its lane main, `"acme|mail"` another."""
    picks = [(tenant, lane or "main") for tenant, _, lane in (name.partition("|") for name in names)]
    return shard.store.dispatch(term, 250, window, picks, order=shard.order)


def outcomes(answer: Dispatched) -> list[tuple[str, str]]:
    return [(one.tenant, one.outcome) for one in answer.taken]


def names(lanes: Sequence[MirrorLane]) -> list[tuple[str, bool]]:
    return [(f"{lane.tenant}|{lane.lane}", lane.runs) for lane in lanes]


def limits(shard: Shard, *scopes: ScopeLimits) -> None:
    shard.versions += 1
    shard.store.configure(shard.versions, scopes=scopes)
