"""The system checks. Every id is stable; `tests/unit/test_checks.py` has one test for each.

They read settings and modules, never the store and never a table. `apps.ready()` imports this module, which registers
them. `E003` and `E004` are the backend's own (`DuctorBackend.check`), faults of single settings are `E1nn`
(`setting_readers.READERS`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.management import find_commands
from django.utils.module_loading import import_string

from queueapp import conf
from queueapp.errors import InvalidPolicy
from queueapp.policies import custom
from queueapp.policies.registry import DIRECT, POLICIES
from queueapp.producer.discovery import load_tasks
from queueapp.setting_readers import READERS

COMMANDS = frozenset({"worker", "scheduler", "bench", "stack", "ductor"})
"""Our commands that another app could have, too."""

TENANT_MIDDLEWARE = "queueapp.middleware.TenantMiddleware"

BACKEND_KEYS = frozenset({"BACKEND", "QUEUES", "OPTIONS"})
"""What an alias of TASKS may hold."""

Address = tuple[str, int, str]
"""Host, port and database number of a store; for a unix socket its path, 0 and the number."""


def settings_are_valid() -> tuple[conf.Settings, list[CheckMessage]]:
    """Each fault of `DUCTOR` as a message; settings with a fault count with their defaults in the other checks."""
    loaded, faults = conf.load(getattr(django_settings, "DUCTOR", {}))
    return loaded, [Error(fault.message, hint=fault.hint, id=fault.id) for fault in faults]


@register("queueapp")
def check_settings(**_: Any) -> list[CheckMessage]:
    """E1nn: DUCTOR itself. E152, E153, E154: what it names elsewhere. E158, E159: values of a pool that do not fit."""
    loaded, messages = settings_are_valid()
    if loaded.database not in django_settings.DATABASES:
        messages.append(
            Error(
                f'DUCTOR["DATABASE"] is {loaded.database!r}, which is no alias of DATABASES.',
                hint=f"Known are: {', '.join(django_settings.DATABASES)}.",
                id="queueapp.E152",
            )
        )
    if loaded.cache_alias is not None and loaded.cache_alias not in django_settings.CACHES:
        messages.append(
            Error(
                f'DUCTOR["CACHE_ALIAS"] is {loaded.cache_alias!r}, which is no alias of CACHES.',
                hint=f"Known are: {', '.join(django_settings.CACHES)}.",
                id="queueapp.E153",
            )
        )
    for name, values in loaded.pools.items():
        policy = values.get("policy")
        if policy is not None and policy not in POLICIES and policy not in loaded.policies:
            messages.append(
                Error(
                    f'DUCTOR["POOLS"]["{name}"]["POLICY"] is {policy!r}, which is no policy.',
                    hint=f"There are: {', '.join(sorted({*POLICIES, *loaded.policies}))}. "
                    'Those of your own stand in DUCTOR["POLICIES"].',
                    id="queueapp.E154",
                )
            )
        elif policy is not None and policy not in DIRECT and values.get("dispatch") != "scheduled":
            messages.append(
                Error(
                    f'DUCTOR["POOLS"]["{name}"]["POLICY"] is {policy!r}, which needs scheduled dispatch.',
                    hint='Add "DISPATCH": "scheduled", and run a scheduler; or take one of '
                    f"{', '.join(sorted(DIRECT))}.",
                    id="queueapp.E159",
                )
            )
        unit = values.get("cost_unit", "ms")
        if policy == "edf" and values.get("edf_by") == "latest_start" and unit != "ms":
            messages.append(
                Error(
                    f'DUCTOR["POOLS"]["{name}"] orders by the latest start and counts costs in {unit!r}.',
                    hint='Leave "COST_UNIT" at "ms", or set "EDF_BY" to "deadline".',
                    id="queueapp.E158",
                )
            )
    return messages


@register("queueapp")
def check_policies(**_: Any) -> list[CheckMessage]:
    """E160: a policy of your own that is none, or has the name of one of ours."""
    loaded, _faults = settings_are_valid()
    messages: list[CheckMessage] = []
    for name, path in sorted(loaded.policies.items()):
        if name in POLICIES:
            messages.append(
                Error(
                    f'DUCTOR["POLICIES"] has {name!r}, the name of a policy of Ductor.',
                    hint="Give yours another name: pools and metrics could not tell the two apart.",
                    id="queueapp.E160",
                )
            )
            continue
        try:
            custom.load(name, path)
        except InvalidPolicy as error:
            messages.append(
                Error(
                    f'DUCTOR["POLICIES"][{name!r}] cannot run: {error}',
                    hint="docs/policies.md shows a policy in twenty lines.",
                    id="queueapp.E160",
                )
            )
    return messages


@register("queueapp")
def check_backend(**_: Any) -> list[CheckMessage]:
    """E001: no alias is ours. E002: DEFAULT_ALIAS is not ours. W001: `default` is somebody else's."""
    ours = conf.our_aliases()
    if not ours:
        return [
            Error(
                "No alias of TASKS has Ductor's backend, so no task reaches it.",
                hint=f'Add TASKS = {{"default": {{"BACKEND": "{conf.BACKEND}"}}}}.',
                id="queueapp.E001",
            )
        ]
    chosen = settings_are_valid()[0].default_alias
    if chosen is not None and chosen not in ours:
        return [
            Error(
                f'DUCTOR["DEFAULT_ALIAS"] is {chosen!r}, an alias of TASKS that is missing or not Ductor\'s.',
                hint=f"Ductor's are: {', '.join(ours)}.",
                id="queueapp.E002",
            )
        ]
    if "default" not in ours:
        return [
            Warning(
                "The alias `default` of TASKS has another backend: tasks decorated by django.tasks go there.",
                hint=f"Tasks decorated by queueapp.task go to {(chosen or ours[0])!r}.",
                id="queueapp.W001",
            )
        ]
    return []


@register("queueapp")
def check_backend_keys(**_: Any) -> list[CheckMessage]:
    """W002: a key of one of our aliases that nobody reads, such as QUEUE for QUEUES."""
    tasks = django_settings.TASKS if conf.our_aliases() else {}
    messages: list[CheckMessage] = []
    for alias in conf.our_aliases():
        for name in sorted(str(key) for key in tasks[alias] if key not in BACKEND_KEYS):
            near = get_close_matches(name.upper(), sorted(BACKEND_KEYS), n=1)
            if name in READERS:
                hint = "Ductor's own settings stand in DUCTOR."
            else:
                hint = f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(sorted(BACKEND_KEYS))}."
            messages.append(
                Warning(f'TASKS["{alias}"] has "{name}", which nobody reads.', hint=hint, id="queueapp.W002")
            )
    return messages


@register("queueapp")
def check_store(**_: Any) -> list[CheckMessage]:
    """E010: no store outside of DEBUG. E011: the store is also a cache, whose `clear()` would erase the queue."""
    loaded, _faults = settings_are_valid()
    missing = loaded.redis_url in (None, "embedded:") and loaded.cache_alias is None
    if missing:
        if django_settings.DEBUG or in_test_run():
            return []
        return [
            Error(
                'DEBUG is off and DUCTOR["REDIS_URL"] names no store; the embedded server is for development.',
                hint='Set DUCTOR["REDIS_URL"], for example to "redis://localhost:6379/0".',
                id="queueapp.E010",
            )
        ]
    store = _store_address(loaded)
    return [
        Error(
            f"The store is also the cache {alias!r}: cache.clear() would erase the queue.",
            hint='Give one of them another database number, such as "redis://localhost:6379/1", or another server.',
            id="queueapp.E011",
        )
        for alias, cache in django_settings.CACHES.items()
        if store is not None and store in _cache_addresses(cache)
    ]


def in_test_run() -> bool:
    """Whether Django has set this process up for tests: that turns DEBUG off, and tests bring a store or need none."""
    return hasattr(getattr(sys.modules.get("django.test.utils"), "_TestState", None), "saved_data")


@register("queueapp")
def check_shared_app(**_: Any) -> list[CheckMessage]:
    """E012: with schemas per tenant (django-tenants) our tables belong into the shared schema."""
    shared = getattr(django_settings, "SHARED_APPS", None)
    if shared is None:
        return []
    ours = {"queueapp", "queueapp.apps.QueueAppConfig"}
    if ours & set(shared) and not ours & set(getattr(django_settings, "TENANT_APPS", ())):
        return []
    return [
        Error(
            "queueapp must stand in SHARED_APPS and not in TENANT_APPS: one queue serves every schema.",
            hint="Move it there, then run migrate_schemas --shared.",
            id="queueapp.E012",
        )
    ]


@register("queueapp")
def check_tenancy(**_: Any) -> list[CheckMessage]:
    """E155, E156, E157: a callable about tenants that cannot be imported. W003: resolvers that nobody asks."""
    loaded, _faults = settings_are_valid()
    named = [
        *(("TENANT_RESOLVERS", source, "queueapp.E155") for source in loaded.tenant_resolvers),
        ("TENANT_CONTEXT", loaded.tenant_context, "queueapp.E156"),
        ("API_TENANTS", loaded.api_tenants, "queueapp.E157"),
    ]
    messages: list[CheckMessage] = [
        Error(
            f'DUCTOR["{name}"] has {source!r}, which {fault}.',
            hint='Name a callable of a module that can be imported, such as "shop.tenants.from_request".',
            id=check_id,
        )
        for name, source, check_id in named
        if isinstance(source, str) and (fault := _fault_of_callable(source))
    ]
    if loaded.tenant_resolvers and not any(map(_is_tenant_middleware, django_settings.MIDDLEWARE)):
        messages.append(
            Warning(
                f'DUCTOR["TENANT_RESOLVERS"] is set, but {TENANT_MIDDLEWARE} is not in MIDDLEWARE: nobody asks them.',
                hint="Add the middleware; without it jobs of requests go to TENANT_DEFAULT.",
                id="queueapp.W003",
            )
        )
    return messages


@register("queueapp")
def check_tasks_modules(**_: Any) -> list[CheckMessage]:
    """E020: a `tasks` module that cannot be imported; its tasks would be unknown to the worker."""
    return [
        Error(
            f"{broken.module} cannot be imported: {type(broken.error).__name__}: {broken.error}",
            hint=f"Correct the module of the app {broken.app!r}; a worker does not know its tasks.",
            id="queueapp.E020",
        )
        for broken in load_tasks()
    ]


@register("queueapp")
def check_commands(**_: Any) -> list[CheckMessage]:
    """W020: a command of another app hides one of ours, or is hidden by it."""
    messages: list[CheckMessage] = []
    configs = list(apps.get_app_configs())
    our_place = next((place for place, config in enumerate(configs) if config.name == "queueapp"), 0)
    for place, config in enumerate(configs):
        if place == our_place:
            continue
        # Of two apps with the same command, the one that stands first in INSTALLED_APPS has it.
        hides = "hides" if place < our_place else "is hidden by"
        messages += [
            Warning(
                f"The command `{name}` of the app {config.label!r} {hides} Ductor's.",
                hint=_other_name(name),
                id="queueapp.W020",
            )
            for name in sorted(COMMANDS & set(_commands(config)))
        ]
    return messages


@register("queueapp")
def check_sqlite(**_: Any) -> list[CheckMessage]:
    """W030: SQLite whose transactions begin deferred; with several processes a write then fails at once."""
    return [
        Warning(
            f'The database "{alias}" is SQLite without transaction_mode IMMEDIATE: when several processes write, a '
            'transaction that began by reading fails at once with "database is locked".',
            hint='Set DATABASES[...]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}.',
            id="queueapp.W030",
        )
        for alias, database in django_settings.DATABASES.items()
        if str(database.get("ENGINE", "")).endswith("sqlite3")
        and str(database.get("OPTIONS", {}).get("transaction_mode") or "").upper() not in {"IMMEDIATE", "EXCLUSIVE"}
    ]


def _fault_of_callable(path: str) -> str:
    """What is wrong with a dotted path that should lead to a callable; "" when nothing is."""
    try:
        found = import_string(path)
    except Exception as error:  # a module of the host may raise anything
        return f"cannot be imported ({type(error).__name__}: {error})"
    return "" if callable(found) else "is not callable"


def _is_tenant_middleware(path: str) -> bool:
    if path == TENANT_MIDDLEWARE:
        return True
    try:
        found = import_string(path)
    except Exception:
        return False
    # By path: a host may have a subclass of its own.
    return any(f"{base.__module__}.{base.__qualname__}" == TENANT_MIDDLEWARE for base in getattr(found, "__mro__", ()))


def _other_name(command: str) -> str:
    if command == "ductor":
        return "Order INSTALLED_APPS so that the one you need stands first."
    return f"Ductor's is also called `ductor_{command}`."


def _commands(config: AppConfig) -> Sequence[str]:
    return find_commands(os.path.join(config.path, "management"))


def _store_address(loaded: conf.Settings) -> Address | None:
    if isinstance(loaded.redis_url, str):
        return _address(loaded.redis_url)
    return None


def _cache_addresses(cache: Mapping[str, Any]) -> set[Address]:
    location = cache.get("LOCATION") or ()
    servers: Iterable[object] = location.split(",") if isinstance(location, str) else location
    options = cache.get("OPTIONS") or {}
    number = options.get("db", options.get("DB"))
    found = {_address(str(server).strip(), number) for server in servers}
    return {address for address in found if address is not None}


def _address(url: str, number: object = None) -> Address | None:
    """Where a URL leads, spelled one way; None for what is no URL of Redis."""
    try:
        parts = urlsplit(url)
        port = parts.port or 6379
    except ValueError:
        # A special character in the password, most likely: the error would quote it. The store's own fault says more.
        return None
    query = parse_qs(parts.query)
    if parts.scheme == "unix":
        return parts.path, 0, str(query.get("db", [number or 0])[0])
    if parts.scheme not in {"redis", "rediss"}:
        return None
    host = (parts.hostname or "localhost").lower()
    in_path = unquote(parts.path).strip("/")
    database = query.get("db", [in_path or number or 0])[0]
    return "localhost" if host in {"127.0.0.1", "::1"} else host, port, str(database)


CHECKS: tuple[Callable[..., list[CheckMessage]], ...] = (
    check_settings,
    check_policies,
    check_backend,
    check_backend_keys,
    check_store,
    check_shared_app,
    check_tenancy,
    check_tasks_modules,
    check_commands,
    check_sqlite,
)
"""All of them, for those who run them at a start of their own."""
