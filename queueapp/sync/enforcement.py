"""Everything at once, on request: what SQL says of whole pools is compared, reported and brought into force now.

`repair` does the same in bounded shares and unasked; this is for people who changed rows by SQL, restored a database or
lost a store and do not want to wait. Called by `ductor sync`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from queueapp.errors import InvalidOption, OldVersion
from queueapp.store.configuration import ScopeLimits
from queueapp.sync.comparison import Found, Turn, bring, look, scope_of
from queueapp.sync.intent import policy_fault

PAGE = 10_000
TRIES = 3

Values = Mapping[str, object]
"""Settings by name; empty where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A record of the store that was not as SQL wants it."""

    tenant: str = ""
    """Empty: the pool's own settings, of which only those that differ are named."""
    lane: str = ""
    key: str = ""
    """The pattern of concurrency keys that it is about."""
    in_force: Values
    """Empty: the store knows nothing of it."""
    wanted: Values
    """Empty: SQL has no row of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """What became of one pool."""

    pool: str
    differences: Sequence[Difference]
    policy_waits: bool
    """The pool's new policy, or what it goes by, waits for the end of the change before it; the rest is in force."""


def enforce(pools: Sequence[str], *, dry_run: bool = False) -> Iterator[Enforced]:
    """Bring each pool into force, or with `dry_run` only compare. Raises StoreError, OldVersion among them, and in the
    end InvalidOption for a policy that cannot be, when all else is in force.
    """
    fault: InvalidOption | None = None
    for pool in pools:
        differences: list[Difference] = []
        policy_waits = False
        turn = Turn(pool=pool)
        done = False
        while not done:
            found, waits = _page(pool, turn, dry_run=dry_run)
            fault = fault or (policy_fault(pool, found.pool) if found.pool is not None else None)
            differences += _differences(found, with_pool=turn == Turn(pool=pool))
            policy_waits |= waits
            turn, done = found.then, found.done
        yield Enforced(pool=pool, differences=differences, policy_waits=policy_waits)
    if fault is not None:
        raise fault


def _page(pool: str, turn: Turn, *, dry_run: bool) -> tuple[Found, bool]:
    """One page, and whether the policy has to wait. Looks again when somebody saved between reading and writing."""
    for _ in range(TRIES - 1):
        try:
            return _once(pool, turn, dry_run=dry_run)
        except OldVersion:
            continue
    return _once(pool, turn, dry_run=dry_run)


def _once(pool: str, turn: Turn, *, dry_run: bool) -> tuple[Found, bool]:
    found = look(pool, turn, PAGE)
    if dry_run:
        return found, False
    try:
        return found, bring(pool, found) < len(found.scopes) + len(found.keys) + (found.pool is not None)
    except InvalidOption:  # told when all pools had their turn
        return found, False


def _differences(found: Found, *, with_pool: bool) -> Iterator[Difference]:
    if with_pool and found.pool is not None:
        before, wanted = asdict(found.pool_in_force), asdict(found.pool)
        names = [name for name in wanted if wanted[name] != before[name]]
        yield Difference(in_force={name: before[name] for name in names}, wanted={name: wanted[name] for name in names})
    for asked in found.scopes:
        tenant, lane = scope = scope_of(asked)
        yield Difference(
            tenant=tenant, lane=lane, in_force=_values(found.scopes_in_force.get(scope)), wanted=_values(asked)
        )

    for key in found.keys:
        before = (
            {"max_in_flight": found.keys_in_force[key.pattern].max_in_flight}
            if key.pattern in found.keys_in_force
            else {}
        )
        yield Difference(
            key=key.text, in_force=before, wanted={} if key.clear else {"max_in_flight": key.max_in_flight}
        )


def _values(limits: ScopeLimits | None) -> Values:
    if limits is None or limits.clear:
        return {}
    return {
        "weight": limits.weight,
        "max_in_flight": limits.max_in_flight,
        "min_share": limits.min_share,
        "paused": limits.paused,
    }
