"""The fairness certificate: what each tenant of a pool had in the last minutes, against what it was entitled to.

Called by the terminal, the admin, REST and the metrics. The figures come from the store (`store.service`, at most nine
round trips), the arithmetic and the meaning of every word from `inspection.shares`; docs/fairness.md explains both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from queueapp.inspection.shares import (
    Claim,
    Lag,
    Place,
    Share,
    Standing,
    jain,
    lags_of_ring,
    lags_of_tiered,
    lags_of_wfq,
    shares,
)
from queueapp.store import shards
from queueapp.store.configuration import Rate
from queueapp.store.served import Part
from queueapp.store.service import MINUTE_MS, WINDOW_MAX_S, Service, TenantService, read_service

WINDOW_S = 300
"""What is looked at unless another window is asked for."""
WINDOW_LEAST_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantShare:
    """One tenant in one pool."""

    tenant: str
    weight: float
    min_share: int
    """Its guaranteed minimum of running jobs; what that gives is served, and moves neither lag nor turn."""
    dispatch_rate: Rate | None
    """At which its jobs may start; None = any."""
    state: Standing
    jobs: int
    """Leases in the window, without those that were given back unrun."""
    units: float
    """Service in the window, in the pool's unit of cost."""
    waiting: int
    """Jobs that wait, also for their time."""
    active: int | None
    """Running jobs; None where neither a ceiling nor a minimum counts them."""
    entitled_units: float
    share: float
    """Its part of what was served to all who are told of here, 0..1."""
    entitled_share: float
    ratio: float | None
    """Served over entitled; None when it was entitled to nothing."""
    wait_s: float | None
    """How long the first of its jobs in line has waited, pauses included; None = none is in line, or it was not looked
    at."""
    waits_s: Mapping[str, float]
    """What the jobs leased in the window had waited for, all together: `schedule`, `backoff`, `limits`, `line`."""
    lag: float | None
    """How far it is behind, in units (`ring`: in jobs); None under a policy without a bound, out of line, and where its
    first job is one that others pass over because it twice crashed its worker."""
    lag_bound: float | None
    """The most that the policy promises for that."""

    @property
    def beyond_bound(self) -> bool:
        """The policy did not keep its promise."""
        return self.lag is not None and self.lag_bound is not None and self.lag > self.lag_bound * (1 + 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How a pool's service was shared out in a window, at one moment."""

    pool: str
    policy: str
    unit: str
    """Of cost: `ms`, or the pool's own word."""
    window_s: float
    """From the beginning of the first minute that was looked at."""
    units: float
    """Served to all tenants, those that are left out included."""
    jobs: int
    tenants: tuple[TenantShare, ...]
    """With demand, or asked for; the worst state first, then those with most service."""
    states: Mapping[str, int]
    """State → how many of `tenants`; every state is there."""
    jain_service: float
    """Jain's index of service per weight over the tenants with demand; those without service count as zeros."""
    jain_count: float
    """The same of the number of jobs."""
    jain_entitled: float
    """The same of served over entitled: 1 also where some ask for little, as long as everybody had its part."""
    left_out: int
    """Tenants with waiting jobs that were not read, in a pool with thousands; the next readings take others."""
    whole: bool
    """Nobody was left out."""

    def of(self, tenant: str) -> TenantShare | None:
        """One tenant; None when it had no demand and was not asked for."""
        return next((one for one in self.tenants if one.tenant == tenant), None)


def certificate(
    pool: str, window_s: float = WINDOW_S, *, tenants: Sequence[str] = (), now_ms: int | None = None
) -> Certificate:
    """The certificate of a pool for the last `window_s` seconds, 60 to 3,600, in whole minutes.

    `tenants` are told of in any case. `now_ms` stands in for the store's clock in tests. Raises StoreUnavailable.
    """
    window_s = min(max(window_s, WINDOW_LEAST_S), WINDOW_MAX_S)
    reads = shards.reads(pool)
    service = read_service(reads.client, reads.keys, window_s=window_s, tenants=tenants, now_ms=now_ms)
    return certify(pool, service, asked=tenants)


def certify(pool: str, service: Service, *, asked: Sequence[str] = ()) -> Certificate:
    """The certificate that these figures make."""
    entries = list(service.tenants.values())
    claims = [_claim(service, entry) for entry in entries]
    lags = _lags(service, entries)
    told = [
        _told(entry, share, service.now_ms, lags.get(entry.tenant))
        for entry, claim, share in zip(entries, claims, shares(claims), strict=True)
        if claim.demands or entry.waiting or entry.tenant in asked
    ]
    severity = list(Standing)
    told.sort(key=lambda one: (severity.index(one.state), -one.units, one.tenant))
    sharing = [claim for claim in claims if claim.demands]
    counted = Counter(one.state for one in told)
    ratios = [one.ratio for one in told if one.ratio is not None]
    return Certificate(
        pool=pool,
        policy=service.policy,
        unit=service.unit,
        window_s=(service.now_ms - service.start_ms) / 1000,
        units=sum(minute.units for minute in service.minutes),
        jobs=sum(minute.jobs for minute in service.minutes),
        tenants=tuple(told),
        states={state.value: counted[state] for state in Standing},
        jain_service=jain([claim.units / claim.weight for claim in sharing]),
        jain_count=jain([claim.jobs for claim in sharing]),
        jain_entitled=jain(ratios),
        left_out=max(0, service.waiting_tenants - sum(entry.waiting > 0 for entry in entries)),
        whole=service.whole,
    )


def _told(entry: TenantService, share: Share, now_ms: int, lag: Lag | None) -> TenantShare:
    had = entry.had
    return TenantShare(
        tenant=entry.tenant,
        weight=entry.weight,
        min_share=entry.min_share,
        dispatch_rate=entry.dispatch_rate,
        state=share.standing,
        jobs=max(0, had.jobs),
        units=max(0.0, had.units),
        waiting=entry.waiting,
        active=entry.active,
        entitled_units=share.entitled,
        share=share.share,
        entitled_share=share.entitled_share,
        ratio=share.ratio,
        wait_s=None if entry.since_ms is None else max(0, now_ms - entry.since_ms) / 1000,
        waits_s=had.waits.in_seconds(),
        lag=None if lag is None else lag.units,
        lag_bound=None if lag is None else lag.bound,
    )


def _claim(service: Service, entry: TenantService) -> Claim:
    """What the tenant had and asks for, in numbers."""
    had, in_line, since_ms = entry.had, entry.in_line, _could_run_since(entry)
    units = max(0.0, had.units)
    asks = entry.waiting * _cost(service, had) if in_line else 0.0
    full = bool(entry.waiting) and entry.ceiling is not None and (entry.active or 0) >= entry.ceiling
    throttled = bool(entry.waiting) and entry.token_ms is not None and entry.token_ms > service.now_ms
    capped = (full or throttled) and not in_line
    if entry.ceiling is not None and service.unit == "ms":
        # So many slots serve no more than so much; with a free slot at this moment, too, its ceiling is what binds it.
        most = max(units, float(entry.ceiling * (service.now_ms - service.start_ms)))
        asks = min(asks, most - units)
    if entry.dispatch_rate is not None:
        # Nor do so many starts, whatever it has waiting.
        rate = entry.dispatch_rate
        starts = rate.burst + rate.rate * (service.now_ms - service.start_ms) / rate.period_ms
        asks = min(asks, max(0.0, starts - max(0, had.jobs)) * _cost(service, had))
    return Claim(
        weight=entry.weight,
        units=units,
        jobs=max(0, had.jobs),
        largest=max(had.largest, had.minimum_largest),
        asks=asks,
        presence=_presence(service, entry),
        wait_s=0.0 if entry.since_ms is None else max(0, service.now_ms - since_ms) / 1000,
        in_line=in_line,
        capped=capped,
        parked=entry.parked and not in_line,
        paused=service.paused or entry.paused,
    )


def _could_run_since(entry: TenantService) -> int:
    """Since when its first job could have run: it waited, and nothing held its tenant back. 0: not known."""
    return max(entry.since_ms or 0, entry.had.entered_ms)


def _cost(service: Service, had: Part) -> float:
    """What a waiting job of this tenant will cost: as its last ones did, else as the pool's, else the default."""
    if had.jobs > 0 and had.units > 0:
        return max(1.0, had.units / had.jobs)
    units, jobs = sum(minute.units for minute in service.minutes), sum(minute.jobs for minute in service.minutes)
    if jobs > 0 and units > 0:
        return max(1.0, units / jobs)
    return service.default_cost if service.unit == "ms" else 1.0


def _presence(service: Service, entry: TenantService) -> float:
    """The part of the pool's service that was dealt out while the tenant had work.

    It had some in each minute in which it had service, and since its first waiting job could have run. So whoever came
    a moment ago, or was paused until then, is not entitled to a part of what was served before. Of whom that is not
    known it is taken to be long ago: rather starved than unseen.
    """
    there = total = 0.0
    had_some, since_ms = entry.minutes, _could_run_since(entry)
    for position, minute in enumerate(service.minutes):
        units = max(0.0, minute.units)
        total += units
        if position in had_some:
            there += units
        elif entry.in_line:
            end_ms = min(minute.start_ms + MINUTE_MS, service.now_ms)
            waited_ms = end_ms - max(minute.start_ms, since_ms)
            there += units * min(1.0, max(0, waited_ms) / max(1, end_ms - minute.start_ms))
    return there / total if total > 0 else 1.0


def _lags(service: Service, entries: Sequence[TenantService]) -> dict[str, Lag]:
    """Of the tenants in line, under a policy that has a bound."""
    if service.policy == "ring":
        entries = [entry for entry in entries if entry.in_line and entry.turn is not None]
        turns = [entry.turn for entry in entries if entry.turn is not None]
        lags = lags_of_ring(turns, max(service.in_line, max(turns, default=0) + 1))
        return {entry.tenant: lag for entry, lag in zip(entries, lags, strict=True)}
    most = max(minute.most_in_flight for minute in service.minutes)
    entries = [entry for entry in entries if entry.pointer is not None and not entry.passed_over]
    places = [_place(entry, entry.had, most) for entry in entries]
    if service.policy == "tiered":
        lags = lags_of_tiered(places)
    elif service.policy == "wfq":
        cost = service.default_cost if service.unit == "ms" else 1.0
        lags = lags_of_wfq(places, service.clock, service.clock_moved_ms, cost=cost)
    else:
        return {}
    return {entry.tenant: lag for entry, lag in zip(entries, lags, strict=True)}


def _place(entry: TenantService, had: Part, most_in_flight: int) -> Place:
    ceiling = most_in_flight if entry.ceiling is None else entry.ceiling
    return Place(
        position=entry.pointer or 0.0,
        weight=entry.weight,
        largest=had.largest,
        corrected=min(had.corrections, most_in_flight, ceiling),
        served=had.jobs > had.minimum_jobs,
        since_ms=_could_run_since(entry),
    )
