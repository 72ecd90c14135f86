"""The arithmetic of the fairness certificate: who is entitled to what, how even the shares are, and the word for it.

Pure: numbers in, numbers out. `inspection.fairness` reads them from the store; docs/fairness.md explains them. The
definitions of all words stand here and nowhere else (`word`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

STARVED_BELOW = 0.5
"""Served over entitled."""
STARVED_WAIT_S = 60.0
"""A job that has waited for less starves nobody, however little its tenant had."""
BEHIND_BELOW = 0.9
BORROWS_ABOVE = 1.1
LEAST_PRESENCE = 1e-6
"""A tenant that came this instant is entitled to nothing yet; its weight must stay above zero."""


class Standing(StrEnum):
    """How a tenant stands, in one word; the worst first."""

    STARVED = "starved"
    BEHIND = "behind"
    CAPPED = "capped"
    PAUSED = "paused"
    PARKED = "parked"
    FAIR = "fair"
    BORROWING = "borrowing"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one tenant had in the window, and what more it asks for. Units are the pool's units of cost."""

    weight: float
    units: float
    """Charged for its leases, corrected when the true cost was known; never negative."""
    jobs: int
    """Leases, without those that were given back unrun."""
    largest: float
    """The largest charge of one job; 0 = it had none."""
    asks: float
    """Units of its waiting jobs that may run now: demand that was not met yet."""
    presence: float = 1.0
    """The part of the pool's service in the window that was dealt out while this tenant had work: 0..1."""
    wait_s: float = 0.0
    """For how long its first job has waited and could have run, as far as that is known."""
    in_line: bool = False
    """Some job of it may run now."""
    capped: bool = False
    """A ceiling or a dispatch rate of its own keeps its waiting jobs from running."""
    parked: bool = False
    """Jobs of it came above a rate, and nothing of it may run now."""
    paused: bool = False
    """It, or the pool."""

    @property
    def demands(self) -> bool:
        """It had service in the window, or has work that may run now: it counts among those who share."""
        return self.units > 0 or self.jobs > 0 or self.in_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one tenant of several had, against what it was entitled to."""

    entitled: float
    """Units: weighted max-min over the tenants that had demand."""
    share: float
    """Its part of all that was served, 0..1."""
    entitled_share: float
    ratio: float | None
    """Served over entitled; None when it was entitled to nothing."""
    standing: Standing


def water_fill(capacity: float, demands: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Weighted max-min: nobody gets more than its demand, and what one leaves goes to the others by weight.

    The least demands per weight are met first; from the first that cannot be met on, all have the same per weight
    (progressive filling; Bertsekas and Gallager, Data Networks, 1992). The sum is the lesser of `capacity` and all that
    is demanded.
    """
    order = sorted(range(len(demands)), key=lambda position: demands[position] / weights[position])
    # Weights of the ones not yet looked at, summed from the end: a difference of sums could come out as nothing.
    weights_left = list(accumulate(weights[position] for position in reversed(order)))[::-1]
    granted = [0.0] * len(demands)
    left = max(0.0, capacity)
    for position, weight_left in zip(order, weights_left, strict=True):
        granted[position] = min(demands[position], left * (weights[position] / weight_left))
        left = max(0.0, left - granted[position])
    return granted


def jain(values: Sequence[float]) -> float:
    """Jain's index (Jain, Chiu, Hawe 1984): 1 when all have the same, 1/n when one has everything.

    Nobody, and nothing for anybody, are as even as can be: 1.
    """
    most = max(values, default=0.0)
    if most <= 0:
        return 1.0
    parts = [value / most for value in values]  # so that no square overflows or vanishes
    total = sum(parts)
    return min(1.0, total * total / (len(parts) * sum(part * part for part in parts)))


def shares(claims: Sequence[Claim]) -> list[Share]:
    """The share of each, in their order. What they had together is the capacity that is dealt out anew."""
    sharing = [position for position, claim in enumerate(claims) if claim.demands]
    had = [max(0.0, claims[position].units) for position in sharing]
    capacity = sum(had)
    entitled = dict.fromkeys(range(len(claims)), 0.0)
    alone = dict.fromkeys(range(len(claims)), 0.0)
    weights = [claims[p].weight * max(LEAST_PRESENCE, claims[p].presence) for p in sharing]
    demands = [units + max(0.0, claims[p].asks) for units, p in zip(had, sharing, strict=True)]
    entitled |= zip(sharing, water_fill(capacity, demands, weights), strict=True)
    if sharing:
        alone |= {p: capacity * weight / sum(weights) for p, weight in zip(sharing, weights, strict=True)}
    turn = max((claim.largest / claim.weight for claim in claims), default=0.0)
    found = []
    for position, claim in enumerate(claims):
        units, due = max(0.0, claim.units), entitled[position]
        ratio = units / due if due > 0 else None
        # One job of its own and one of whoever had the largest: less than that no policy can deal out more evenly.
        grain = claim.largest + claim.weight * turn
        found.append(
            Share(
                entitled=due,
                share=units / capacity if capacity > 0 else 0.0,
                entitled_share=due / capacity if capacity > 0 else 0.0,
                ratio=ratio,
                standing=word(claim, entitled=due, alone=alone[position], grain=grain),
            )
        )
    return found


def word(claim: Claim, *, entitled: float, alone: float, grain: float) -> Standing:
    """The one place that says what each word means; the first that fits.

    `entitled`: max-min. `alone`: what its weight would give it if every tenant with demand took its whole part.
    `grain`: a difference that single jobs make, and that nobody is blamed for.

    paused     it or its pool is paused
    capped     it has waiting jobs, and a ceiling or a dispatch rate of its own keeps them from running
    parked     jobs of it came above a rate and wait for their moment, and nothing of it may run now
    idle       it had no service in the window, and nothing of it may run now
    starved    it has work that may run, had less than half of what it was entitled to, and its first job has waited
               for a minute or longer in which nothing held it back
    behind     it has work that may run, and had less than nine tenths of what it was entitled to
    borrowing  it had more than eleven tenths of what its weight alone would give it: it uses what others leave; where
               its ratio is above 1, too, others lack it
    fair       otherwise: it had what it was entitled to, or all that it asked for
    """
    units = max(0.0, claim.units)
    if claim.paused:
        return Standing.PAUSED
    if claim.capped:
        return Standing.CAPPED
    if claim.parked:
        return Standing.PARKED
    if not claim.demands:
        return Standing.IDLE
    if claim.in_line and entitled - units > grain:
        if units < STARVED_BELOW * entitled and claim.wait_s >= STARVED_WAIT_S:
            return Standing.STARVED
        if units < BEHIND_BELOW * entitled:
            return Standing.BEHIND
    if units > BORROWS_ABOVE * alone and units - alone > grain:
        return Standing.BORROWING
    return Standing.FAIR


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one tenant stands in the walk, and what its bound is made of. Only of tenants whose work may run now."""

    position: float
    """Its pointer: a start tag (`tiered`), or the finish tag of its first job (`wfq`)."""
    weight: float
    largest: float
    """The largest charge of one job in the window that was leased by its turn; 0 = none was."""
    corrected: int = 0
    """Most of its jobs in flight whose charges may have been corrected after its last turn; 0 = all costs declared."""
    served: bool = True
    """It had a turn within the window; what a guaranteed minimum gives takes none."""
    since_ms: int = 0
    """Since when its first job could have run; 0 = longer than anybody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a tenant is behind, in units of cost, and the most that the policy promises. Both are of this moment."""

    units: float
    bound: float


def lags_of_tiered(places: Sequence[Place]) -> list[Lag]:
    """Behind the tenant that is furthest ahead of those served in the window, in each tenant's own units.

    A turn is given to whoever has the least start tag S, which is then at most V, and moves it by cost over weight; so
    S lies within one job of V, plus what corrections of the n jobs in flight move it (at most one job each). While
    weights stand, two tenants in the walk are therefore never further apart than (1+n1)·c1/w1 + (1+n2)·c2/w2, and with
    declared costs than c1/w1 + c2/w2.
    """

    def reach(place: Place) -> float:
        return (1 + place.corrected) * place.largest / place.weight

    first = max((place for place in places if place.served), key=lambda place: place.position, default=None)
    found = []
    for place in places:
        if first is None or first is place:
            found.append(Lag(units=0.0, bound=reach(place) * place.weight))
        else:
            behind = max(0.0, first.position - place.position)
            found.append(Lag(units=behind * place.weight, bound=(reach(place) + reach(first)) * place.weight))
    return found


def lags_of_wfq(places: Sequence[Place], clock: float, moved_ms: int, *, cost: float) -> list[Lag]:
    """How far the clock has passed the finish tag of a job that was free to run: nothing, as the least tag goes first.

    A job that was lost, given back, or held back by a pause, a ceiling or a key keeps its tag, and the clock may have
    passed it before it could run (again). It goes first then, and the clock, which last moved at `moved_ms`, stands
    until it has caught up: that is no lag. The bound is one job of its own; `cost` stands for one where it had none.
    """
    return [
        Lag(
            units=max(0.0, clock - place.position) * place.weight if moved_ms > place.since_ms else 0.0,
            bound=place.largest or cost,
        )
        for place in places
    ]


def lags_of_ring(places_in_line: Sequence[int], length: int) -> list[Lag]:
    """How many of the others in the ring have had a turn since this one had its own (or came), in jobs; at most all.

    `places_in_line`: 0 = the next.
    """
    return [Lag(units=float(length - 1 - place), bound=float(length - 1)) for place in places_in_line]
