"""After a save: notes what a transaction touched and carries it over once, when it has committed.

What was touched lives in the hook itself, so that a transaction which rolls back takes both along. Only rows in the
database of `DUCTOR["DATABASE"]` are intent: a copy of them elsewhere changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.core.signals import setting_changed
from django.db import connections
from django.db.models.signals import post_delete, post_save

from queueapp.conf import settings
from queueapp.errors import DuctorError, InvalidOption, OldVersion, StoreUnavailable
from queueapp.models import KeyLimit, Pool, Tenant, TenantLimits
from queueapp.store import connection, shards
from queueapp.store.views import PoolOverview
from queueapp.sync.intent import Scope, chunks, versions, wanted_keys, wanted_pool, wanted_scopes, write

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRY_S = 1.0
"""How long a save, or a question of a page, may wait for the store."""
PATIENT_S = 30.0
"""How long a test waits for it."""
QUIET_S = 3.0
"""After a try that failed, changes are left to the repair for so long: a loop of saves must not wait each time."""
VERSION_TRIES = 3


@dataclass(slots=True)
class _Changes:
    """What a transaction touched. Ids, because a name may be gone, or never come to be, by the time of the commit."""

    pools: set[int] = field(default_factory=set)
    limits: set[tuple[int, int, str]] = field(default_factory=set)
    """(pool id, tenant id, lane)"""
    keys: set[tuple[int, str]] = field(default_factory=set)
    """(pool id, pattern)"""
    gone_pools: dict[int, str] = field(default_factory=dict)
    """Id → name of pools that were deleted."""
    gone_tenants: dict[int, str] = field(default_factory=dict)
    """Id → key of tenants that were deleted."""


class Delivery:
    """The hook that a commit calls, with what its transaction touched. Whoever runs it first delivers."""

    def __init__(self) -> None:
        # Django logs it when a robust callback raised. Of the instance: in the class's body it would name the class.
        self.__qualname__ = "queueapp.sync.delivery.Delivery"
        self.changes = _Changes()
        self.delivered = False
        """Changes that come later wait in another one."""

    def __call__(self) -> None:
        """One try, which neither holds the caller for long nor fails it."""
        if not self.delivered:
            self.delivered = True
            _try(self.changes)


_quiet_until = 0.0


def connect() -> None:
    """Listen to the models. Called once, by the app's `ready()`."""
    for saved in (Pool, TenantLimits, KeyLimit):
        post_save.connect(_on_save, sender=saved, dispatch_uid=f"queueapp.sync.save.{saved.__name__}")
    for deleted in (Pool, Tenant, TenantLimits, KeyLimit):
        post_delete.connect(_on_delete, sender=deleted, dispatch_uid=f"queueapp.sync.delete.{deleted.__name__}")
    setting_changed.connect(_on_setting_changed, dispatch_uid="queueapp.sync")


def overview(pool: str) -> PoolOverview:
    """What the store knows of a pool, within a second, or StoreUnavailable. For pages, which must not hang."""
    return _within(TRY_S, lambda: shards.reads(pool).overview())


def seen_pools() -> dict[str, str]:
    """The pools that the store has seen, by name, within a second. Pages ask this first: who answers it is there."""
    return within(shards.pools)


def within(call: Callable[[], T]) -> T:
    """`call()`, which asks the store, within a second, else StoreUnavailable."""
    return _within(TRY_S, call)


def _on_save(*, instance: Pool | TenantLimits | KeyLimit, using: str, raw: bool, **_: Any) -> None:
    if not raw:  # loaddata never touches the store; repair brings its rows over
        _note(instance, using)


def _on_delete(*, instance: Pool | Tenant | TenantLimits | KeyLimit, using: str, **_: Any) -> None:
    _note(instance, using, gone=True)


def _on_setting_changed(*, setting: str, **_: Any) -> None:
    global _quiet_until
    if setting == "DUCTOR":
        _quiet_until = 0.0  # perhaps another store


def _note(instance: Pool | Tenant | TenantLimits | KeyLimit, using: str, *, gone: bool = False) -> None:
    if using != settings.database:
        return
    connection = connections[using]
    if not (connection.in_atomic_block or connection.get_autocommit()):
        return  # commits by hand call no hooks: the repair brings it over
    open_ones = [each for each in _waiting() if not each.delivered]
    hook = open_ones[-1] if open_ones else Delivery()
    match instance:
        case Pool():
            hook.changes.pools.add(instance.pk)
            if gone:
                hook.changes.gone_pools[instance.pk] = instance.name
        case TenantLimits():
            hook.changes.limits.add((instance.pool_id, instance.tenant_id, instance.lane))
        case KeyLimit():
            hook.changes.keys.add((instance.pool_id, instance.pattern))
        case Tenant():
            hook.changes.gone_tenants[instance.pk] = instance.key
    # Registered for each change, because a rolled-back savepoint takes its registrations along.
    connection.on_commit(hook, robust=True)


def _waiting() -> list[Delivery]:
    """Those that wait for a commit of this thread, oldest first; after a rollback there are none."""
    connection: Any = connections[settings.database]
    return list(dict.fromkeys(hook for _, hook, _ in connection.run_on_commit if isinstance(hook, Delivery)))


def deliver_now(except_for: Collection[Delivery] = ()) -> list[Delivery]:
    """Bring into force what waits for a commit of this thread, also for that of a TestCase, which never comes.

    For the tests of hosts: it takes the time it takes, and raises what the store refuses. Returns what it delivered:
    what the rows of a whole class of tests asked is delivered once more in each of its tests, as each has a store of
    its own.
    """
    hooks = [hook for hook in _waiting() if hook not in except_for]
    for hook in hooks:
        hook.delivered = True
        for touched in _by_pool(hook.changes):
            _push(touched, time.monotonic() + PATIENT_S)
    return hooks


def _try(changes: _Changes) -> None:
    global _quiet_until
    if time.monotonic() < _quiet_until:
        logger.info("left to the scheduler's repair: the store was away a moment ago")
        return
    deadline = time.monotonic() + TRY_S
    try:
        for touched in _by_pool(changes):
            try:
                _push(touched, deadline)
            except InvalidOption as error:
                facts = {"pool": touched.name, "code": error.code}
                logger.warning("saved, and in force but for the policy: %s", error, extra=facts)
    except DuctorError as error:
        _quiet_until = time.monotonic() + QUIET_S
        logger.warning(
            "saved, but not in force yet: the store did not take it; the scheduler's repair brings it over",
            extra={"code": error.code, "reason": str(error)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Touched:
    """What changed of one pool."""

    name: str
    itself: bool
    """Its own settings did."""
    scopes: Sequence[Scope]
    patterns: Sequence[str]


def _by_pool(changes: _Changes) -> Iterator[_Touched]:
    """The pools that changed. What was rolled back has no name."""
    pools = changes.pools | {pool_id for pool_id, _, _ in changes.limits} | {pool_id for pool_id, _ in changes.keys}
    # A row that is there is believed before the memory of one that went: its transaction may have rolled back since.
    names = changes.gone_pools | _values(Pool.objects.values_list("pk", "name"), pools)
    tenants = {tenant_id for _, tenant_id, _ in changes.limits}
    keys = changes.gone_tenants | _values(Tenant.objects.values_list("pk", "key"), tenants)
    for pool_id in sorted(pools & names.keys()):
        scopes = [(keys[tenant], lane) for pool, tenant, lane in changes.limits if pool == pool_id and tenant in keys]
        yield _Touched(
            name=names[pool_id],
            itself=pool_id in changes.pools,
            scopes=scopes,
            patterns=[pattern for pool, pattern in changes.keys if pool == pool_id],
        )


def _push(touched: _Touched, deadline: float) -> None:
    name = touched.name
    above = 0
    for _ in range(VERSION_TRIES):
        version = versions.next(above)
        pool = wanted_pool(name) if touched.itself else None
        wanted = wanted_scopes(name, touched.scopes)
        keys = wanted_keys(name, touched.patterns)

        def bring(version: int = version, pool: Any = pool, wanted: Any = wanted, keys: Any = keys) -> int:
            """0 when in force, else the version that stands in the way."""
            try:
                if not write(name, version, pool, wanted, keys):
                    logger.warning(
                        "the policy of a pool changes once the change before it is through; "
                        "its other settings are in force",
                        extra={"pool": name},
                    )
            except OldVersion:
                return shards.reads(name).version()
            return 0

        above = _within(deadline - time.monotonic(), bring)
        if not above:
            return
        # Somebody wrote something later, perhaps another scope only: read again, under a version above theirs.
    raise OldVersion(f"others kept changing the pool {name!r} meanwhile")


def _within(seconds: float, call: Callable[[], T]) -> T:
    """`call()`, waited for at most so long, else StoreUnavailable.

    Time-outs of sockets do not bound it: a name that does not resolve, several addresses or sentinels add up. A call
    that came too late still ends in its own thread; being late does no harm, by its version.
    """
    answer: list[T] = []
    fault: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(call())
        except BaseException as error:  # handed over to the caller
            fault.append(error)

    thread = threading.Thread(target=run, name="ductor-sync", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if answer:
        return answer[0]
    if fault:
        raise fault[0]
    raise StoreUnavailable(f"The store at {connection.label()} did not answer within {TRY_S:g} s. Is it running?")


def _values(rows: Any, ids: set[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for chunk in chunks(sorted(ids), 500):
        found.update(rows.filter(pk__in=chunk))
    return found
