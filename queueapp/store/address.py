"""Where the store is: the settings read as one checked record.

`REDIS_URL` is a URL (`redis://`, `rediss://`, `unix://`), a mapping for Sentinel, or nothing (or `"embedded:"`) for the
project's embedded server while DEBUG is on; `CACHE_ALIAS` borrows the address of a django-redis cache. Everything that
can be said without a connection is said here, as StoreMisconfigured or NoStore. Passwords stay in `options`, which is
never printed; `label` is what messages show.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.core import mail
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url

from queueapp.conf import settings
from queueapp.errors import NoStore, StoreMisconfigured
from queueapp.store import embedded

EMBEDDED = "embedded:"
NO_STORE = "No store: set DUCTOR['REDIS_URL']; the embedded server is for DEBUG only."
IN_A_TEST = (
    " A test needs no server: use queueapp.testing.recorded(), immediate() or throwaway_store(), around one test or "
    "around all of them."
)
"""Tests run with DEBUG off, so one that enqueues without a helper comes here. `mail.outbox` tells that Django tests."""
OURS = frozenset(
    {
        "socket_timeout",
        "socket_connect_timeout",
        "retry",
        "retry_on_timeout",
        "retry_on_error",
        "decode_responses",
        "encoding",
        "protocol",
    }
)
"""Connection options that Ductor sets itself: each of its clients depends on the right value."""
SENTINEL_KEYS = frozenset(
    {"SENTINELS", "MASTER_NAME", "USERNAME", "PASSWORD", "DB", "SSL", "SENTINEL_USERNAME", "SENTINEL_PASSWORD"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One server, or one Sentinel-watched master."""

    label: str
    """The address as messages show it: no credentials."""
    unix: bool = False
    tls: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Connection options: host, port, path, db, credentials, TLS files."""
    sentinels: tuple[tuple[str, int], ...] = ()
    master_name: str = ""
    sentinel_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def project_directory() -> Path:
    """Where the embedded server and its data live: `<BASE_DIR>/.ductor`."""
    return Path(getattr(django_settings, "BASE_DIR", None) or Path.cwd()) / ".ductor"


def resolve() -> Address:
    """The address that the settings name."""
    configured = settings.redis_url
    if configured is None and settings.cache_alias:
        return _from_cache(settings.cache_alias)
    if isinstance(configured, Mapping):
        return from_sentinels(configured)
    if not configured or configured == EMBEDDED:
        if not django_settings.DEBUG:
            raise NoStore(NO_STORE + (IN_A_TEST if hasattr(mail, "outbox") else ""))
        return from_url(embedded.attach(project_directory()))
    return from_url(configured)


def from_url(url: str, *, setting: str = "DUCTOR['REDIS_URL']", **overrides: Any) -> Address:
    """The address behind a URL. `setting` is what messages call the place where it stands."""
    try:
        options: dict[str, Any] = {**parse_url(url), **overrides}
    except ValueError as error:
        # Neither the URL nor a cause that might quote it: it may carry a password.
        raise StoreMisconfigured(f"{setting} is no URL of a store: {_plain(error)}") from None
    kind = options.pop("connection_class", Connection)
    _refuse_ours(options, setting)
    unix, tls = kind is UnixDomainSocketConnection, kind is SSLConnection
    tls_options = sorted(name for name in options if name.startswith("ssl_"))
    if tls_options and not tls:
        raise StoreMisconfigured(
            f"{setting} has the TLS option {tls_options[0]!r} but asks for a connection without TLS; "
            "write rediss:// for TLS, or remove the option."
        )
    if unix:
        path = options.get("path")
        if not path:
            raise StoreMisconfigured(f"{setting} names no socket; write unix:///path/to/valkey.sock?db=0.")
        if len(os.fsencode(path)) > embedded.SOCKET_PATH_LIMIT:
            raise StoreMisconfigured(
                f"{setting}: the path of the unix socket has {len(os.fsencode(path))} bytes, and at most "
                f"{embedded.SOCKET_PATH_LIMIT} are possible: {path}. Let the server listen at a shorter path."
            )
        label = f"unix:{path}"
    else:
        host = options.get("host", "localhost")
        label = f"{f'[{host}]' if ':' in host else host}:{options.get('port', 6379)}/{options.get('db', 0)}"
    _refuse_unknown(kind, options, setting, named="@" not in url.partition("?")[2])
    return Address(label=label, unix=unix, tls=tls, options=options)


def from_sentinels(mapping: Mapping[str, Any], *, setting: str = "DUCTOR['REDIS_URL']") -> Address:
    """The address of a master that Sentinels watch: `SENTINELS` and `MASTER_NAME`, and what SENTINEL_KEYS adds."""
    unknown = sorted(name for name in mapping if name not in SENTINEL_KEYS and not name.startswith("ssl_"))
    if unknown:
        raise StoreMisconfigured(
            f"{setting} has an unknown key {unknown[0]!r}; known: {', '.join(sorted(SENTINEL_KEYS))}."
        )
    sentinels, master = mapping.get("SENTINELS"), mapping.get("MASTER_NAME")
    if not sentinels or not master:
        raise StoreMisconfigured(f"{setting}: Sentinel needs both SENTINELS (host, port pairs) and MASTER_NAME.")
    try:
        nodes = tuple(_node(entry) for entry in sentinels)
    except (TypeError, ValueError):
        raise StoreMisconfigured(
            f"{setting}['SENTINELS'] is a list of (host, port) pairs or of 'host:port' texts; 26379 is the usual port."
        ) from None
    tls_options = {name: value for name, value in mapping.items() if name.startswith("ssl_")}
    tls = bool(mapping.get("SSL", False))
    if tls_options and not tls:
        raise StoreMisconfigured(f"{setting} has the TLS option {min(tls_options)!r} without 'SSL': True.")
    options = {"db": mapping.get("DB", 0), **_credentials(mapping, ""), **tls_options}
    _refuse_unknown(SSLConnection if tls else Connection, options, setting)
    return Address(
        label=f"master {master!r} of the Sentinels {', '.join(f'{host}:{port}' for host, port in nodes)}",
        tls=tls,
        options=options,
        sentinels=nodes,
        master_name=str(master),
        sentinel_options=_credentials(mapping, "SENTINEL_"),
    )


def _from_cache(alias: str) -> Address:
    setting = f"DUCTOR['CACHE_ALIAS'] = {alias!r}"
    caches: Mapping[str, Mapping[str, Any]] = django_settings.CACHES
    if alias not in caches:
        raise StoreMisconfigured(f"{setting} is not in CACHES; there are: {', '.join(sorted(caches))}.")
    cache = caches[alias]
    db = cache.get("DB")
    if db is None:
        raise StoreMisconfigured(
            f"{setting} needs a database number of Ductor's own, for one CACHES[{alias!r}]['DB'] = 1: clearing the "
            "cache erases all that is in its database."
        )
    options = cache.get("OPTIONS", {})
    locations = cache.get("LOCATION", "")
    location = locations if isinstance(locations, str) else next(iter(locations), "")
    location = location.split(",")[0]
    if options.get("SENTINELS"):
        return from_sentinels(
            {"SENTINELS": options["SENTINELS"], "MASTER_NAME": urlsplit(location).hostname, "DB": db}
            | {key: options[key] for key in ("USERNAME", "PASSWORD") if key in options},
            setting=setting,
        )
    if f"/{db}" == (urlsplit(location).path.rstrip("/") or "/0"):
        raise StoreMisconfigured(
            f"{setting} shares database {db} with the cache: clearing the cache would erase the queue."
        )
    return from_url(location, setting=setting, **_credentials(options, ""), db=db)


def _node(entry: object) -> tuple[str, int]:
    if isinstance(entry, str):
        before, _, after = entry.rpartition(":")
        return (before, int(after)) if before else (after, 26379)
    host, port = cast("tuple[str, int]", entry)
    return str(host), int(port)


def _credentials(mapping: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.lower(): mapping[prefix + name] for name in ("USERNAME", "PASSWORD") if mapping.get(prefix + name)}


def _refuse_ours(options: Mapping[str, Any], setting: str) -> None:
    taken = sorted(OURS & set(options))
    if taken:
        raise StoreMisconfigured(f"{setting} has the option {taken[0]!r}, which Ductor sets itself; remove it.")


def _refuse_unknown(kind: type, options: Mapping[str, Any], setting: str, *, named: bool = True) -> None:
    """redis-py hands unknown options to the connection, which fails only when it is made: look beforehand.

    `named` unless what looks like an option may be the rest of a password.
    """
    known = {"max_connections", "path", "host", "port"}
    for cls in kind.__mro__[:-1]:
        # The mixins document their keywords on __init__; `**kwargs` goes on to the next class.
        known.update(inspect.signature(cls.__init__).parameters)  # type: ignore[misc]  # the class is the one that is asked
    unknown = sorted(set(options) - known)
    if unknown:
        what = f"an unknown option {unknown[0]!r}" if named else "a ? in its password: write it as %3F"
        raise StoreMisconfigured(f"{setting} has {what}.")


def _plain(error: ValueError) -> str:
    """The library's own words when they cannot contain a part of the URL, else ours."""
    text = str(error)
    if text.startswith(("Redis URL must specify", "Invalid value for", "invalid value for", "Invalid value for `")):
        return text
    return "it cannot be read (a special character in the password must be percent-encoded)."
