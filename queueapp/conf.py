"""The settings: the dictionary `DUCTOR` of the Django settings, read once into a frozen `Settings`.

`settings` is the lazy object that everybody imports; it reads `DUCTOR` at the first access and again after
`override_settings`. A fault raises SettingFault at that access, and is a system check with a stable id before that
(`checks.py`). The reusable app reads no environment variables. `setting_readers.py` says what each value may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from queueapp.setting_readers import Backoff, SettingFault, TenantSource, read

__all__ = [
    "DEFAULT_POOL",
    "SettingFault",
    "Settings",
    "default_alias",
    "known_pools",
    "load",
    "our_aliases",
    "settings",
]

DEFAULT_POOL = "default"
BACKEND = "queueapp.backend.DuctorBackend"
LEADER_MARGIN = 0.1
"""Part of its lease that a leader does not trust (`scheduler.leadership`): clocks drift, and a reply needs its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its default; `DUCTOR` names each in capitals.

    Durations are given in seconds (int, float) or as a timedelta, and kept in milliseconds: `LEASE_SECONDS` is
    `lease_ms`, `RESULT_TTL` is `result_ttl_ms`.
    """

    redis_url: str | Mapping[str, object] | None = None
    """The store: a URL, or `{"SENTINELS": [...], "MASTER_NAME": ...}`; None or "embedded:" is the embedded server."""
    cache_alias: str | None = None
    """Borrow host and credentials from this django-redis cache; it must name a `"DB"` of its own for Ductor."""
    namespace: str = "ductor"
    """Prefix of every key. Two installations on one store need two."""
    default_alias: str | None = None
    """The alias of TASKS that `@task` takes when several have Ductor's backend."""
    pools: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Pools beside those in `TASKS[alias]["QUEUES"]`, and the values that their rows get when they are first made."""

    policies: Mapping[str, str] = field(default_factory=dict)
    """Policies of your own: name → dotted path of the class, or of an object that is one. For scheduled dispatch."""

    enqueue_on_commit: bool = True
    """Inside a transaction, send after commit and never on rollback."""
    on_commit_failure: str = "outbox"
    """When the store cannot take a job after commit: "outbox" keeps it as a row that a scheduler sends.

    "log" only writes an ERROR and sends `enqueue_failed`, which "outbox" does, too.
    """
    backlog_limit: int | None = None
    """Most waiting jobs of a pool whose row names no limit of its own; None is no limit."""
    max_payload_bytes: int = 256 * 1024
    """Largest payload: the arguments of one job as JSON."""
    max_result_bytes: int = 64 * 1024
    """Largest result of one job as JSON."""
    idempotency_ttl_ms: int = 24 * 3_600_000
    """How long an idempotency key stands for its job."""

    max_attempts: int = 1
    """Attempts before a job that raises is dead; 1, as in django.tasks: what raises has failed."""
    max_crashes: int = 3
    """Lost workers and expired leases before a job is dead; counted apart from attempts."""
    backoff: Backoff | None = None
    """Delay before another attempt: seconds, or a callable `(exception, errors) -> seconds or None`.

    None is exponential: 5 s, doubled each time up to 10 minutes, with full jitter.
    """
    unknown_task_grace_ms: int = 15 * 60_000
    """How long a job whose task no worker knows is given back before it is dead."""

    tenant_default: str = "default"
    """The tenant of a job for which nobody named one."""
    unknown_tenants: str = "accept"
    """"accept" runs tenants without a row with the defaults of the pool; "reject" refuses them at enqueue."""
    tenant_resolvers: tuple[TenantSource, ...] = ()
    """Asked in turn by `TenantMiddleware`: callables `request -> tenant or None`, or their dotted paths."""
    tenant_context: TenantSource | None = None
    """Context manager that is entered with the tenant's id around each task body, or its dotted path."""

    lease_ms: int = 30_000
    """How long a worker may hold a job without a heartbeat; it beats three times in this time."""
    grace_ms: int = 25_000
    """How long a stopping worker waits for running jobs before it gives the rest back."""
    leader_ttl_ms: int = 5_000
    """Length of the lease of leadership."""
    leader_renew_ms: int = 0
    """Between two renewals of it; 0 is a third of `LEADER_TTL_SECONDS`."""
    leader_retry_ms: int = 1_000
    """Between two tries of a standby scheduler, which also tries when the lease ends: longer than it is no delay."""
    leader_presence: str = "auto"
    """How the death of a leader or a worker shows at once: a subscription with SUBSCRIBE ("pubsub", what "auto" takes)
    or SSUBSCRIBE ("shard"). "off": only leases decide."""
    replay_window_ms: int = 60_000
    """How long an ended job stays at least, so that a repeated call finds it."""

    result_ttl_ms: int = 24 * 3_600_000
    """How long an ended job is kept."""
    result_max: int = 100_000
    """How many ended jobs are kept in a pool."""
    dead_ttl_ms: int = 30 * 86_400_000
    """How long a dead letter is kept."""
    dead_max: int = 10_000
    """How many dead letters are kept for a tenant in a pool."""
    records_ttl_ms: int = 365 * 86_400_000
    """How long records of what was done to dead letters are kept, and jobs in the outbox that the store refused."""
    runs_ttl_ms: int = 30 * 24 * 3_600_000
    """How long a run of a flow is kept after its end, with all that is its; 0 = as long as it is not deleted."""
    timeout_s: float | None = None
    """Seconds after which a run of a task without a `timeout` of its own is given up; None: never."""

    api_tenants: TenantSource | None = None
    """Callable `request -> set of tenant ids or ALL`, or its dotted path; None closes the REST API."""
    mask: tuple[str, ...] = ("password", "passwd", "secret", "token", "api_key", "authorization", "cookie")
    """Names of arguments whose values are never shown."""
    metrics_tenants: int = 100
    """How many tenants have a label of their own in the metrics; the rest share `_other`."""
    database: str = "default"
    """Alias of the database that holds Ductor's tables."""

    @property
    def leader_renewal_ms(self) -> int:
        """`leader_renew_ms` with its default filled in."""
        return self.leader_renew_ms or self.leader_ttl_ms // 3


def load(raw: object) -> tuple[Settings, list[SettingFault]]:
    """The settings in `raw` with all their faults; a setting with a fault has its default."""
    values, faults = read(raw)
    loaded = Settings(**cast("dict[str, Any]", values))
    trusted_ms = round(loaded.leader_ttl_ms * (1 - LEADER_MARGIN))
    if loaded.leader_renew_ms >= trusted_ms:
        faults.append(
            SettingFault(
                "LEADER_RENEW_SECONDS",
                "queueapp.E150",
                f'DUCTOR["LEADER_RENEW_SECONDS"] ({loaded.leader_renew_ms / 1000:g}) is not below '
                f"{trusted_ms / 1000:g}, the part of LEADER_TTL_SECONDS ({loaded.leader_ttl_ms / 1000:g}) for which a "
                "leader believes in its lease.",
                "A leader that renews later stops dispatching before each renewal: leave it out, for a third of the "
                "TTL.",
            )
        )
    if loaded.redis_url is not None and loaded.cache_alias is not None:
        faults.append(
            SettingFault(
                "CACHE_ALIAS",
                "queueapp.E151",
                'DUCTOR has both "REDIS_URL" and "CACHE_ALIAS".',
                "Keep the one that says where the store is.",
            )
        )
    return loaded, faults


class _LazySettings:
    """Reads `DUCTOR` when an attribute is first asked for. Threads that race here build equal objects."""

    _loaded: Settings | None = None

    def __getattr__(self, name: str) -> Any:
        loaded = self._loaded
        if loaded is None:
            loaded, faults = load(getattr(django_settings, "DUCTOR", {}))
            if faults:
                raise faults[0]
            self._loaded = loaded
        return getattr(loaded, name)

    def reset(self) -> None:
        self._loaded = None


_lazy = _LazySettings()
settings: Settings = cast(Settings, _lazy)


def _on_setting_changed(*, setting: str, **_: object) -> None:
    if setting == "DUCTOR":
        _lazy.reset()


setting_changed.connect(_on_setting_changed, dispatch_uid="queueapp.conf")


def our_aliases() -> list[str]:
    """The aliases of TASKS whose backend is Ductor's or a subclass of it, in the order of the setting."""
    return [alias for alias, params in _tasks_setting().items() if _is_ours(params.get("BACKEND", ""))]


def default_alias() -> str | None:
    """The alias that `@task` takes without `backend=`; None when no alias is ours.

    `DEFAULT_ALIAS` decides; without it `default`, when that is ours, else the first of ours.
    """
    ours = our_aliases()
    try:
        chosen = settings.default_alias
    except SettingFault:
        # Tasks are made at import, often while apps get ready: the check names the fault, and must be reached for that.
        chosen = load(getattr(django_settings, "DUCTOR", {}))[0].default_alias
    if chosen is not None:
        return chosen
    return DEFAULT_POOL if DEFAULT_POOL in ours else next(iter(ours), None)


def known_pools() -> set[str]:
    """The pools that the settings name: `default`, `POOLS`, and `QUEUES` of our aliases. Pool rows come on top."""
    tasks = _tasks_setting()
    queues = {str(queue) for alias in our_aliases() for queue in tasks[alias].get("QUEUES", ())}
    return {DEFAULT_POOL, *settings.pools, *queues}


def _tasks_setting() -> Mapping[str, Mapping[str, Any]]:
    tasks = getattr(django_settings, "TASKS", None)
    return tasks if isinstance(tasks, Mapping) else {}


def _is_ours(path: str) -> bool:
    if path == BACKEND:
        return True
    try:
        backend = import_string(path)
    except ImportError:
        return False
    # conf stands below backend and must not import it: our class is known by its path among the bases.
    return any(f"{base.__module__}.{base.__qualname__}" == BACKEND for base in getattr(backend, "__mro__", ()))
