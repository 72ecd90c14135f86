"""What the store's errors mean, in Ductor's words: one table from redis-py's exceptions to ours, each with its remedy.

StoreUnavailable: it may pass by itself, waiting and trying again is right. StoreMisconfigured: it will not, somebody
has to change something. No message holds a password; redis-py's own texts hold none either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from redis import exceptions as redis_errors

from queueapp.errors import StoreError, StoreMisconfigured, StoreUnavailable

UNAVAILABLE: tuple[tuple[str, str], ...] = (
    ("LOADING", "is loading its data after a start; it answers when that is done."),
    ("MASTERDOWN", "is a replica that has lost its master; it answers when the master is back."),
    (
        "NOREPLICAS",
        "refuses writes: fewer replicas are in step than `min-replicas-to-write` demands. Start the replicas.",
    ),
    ("CLUSTERDOWN", "is a cluster that is down."),
    ("BUSY", "is busy with a long script of somebody; `SCRIPT KILL` or `FUNCTION KILL` ends one that has not written."),
    ("TRYAGAIN", "moves the key just now; trying again is right."),
    ("max number of clients reached", "has no connection left: raise its `maxclients`, or start fewer processes."),
)
MISCONFIGURED: tuple[tuple[str, str], ...] = (
    (
        "OOM",
        "is full (`maxmemory` reached) and refuses new data; nothing was changed. Raise `maxmemory`, or let work end.",
    ),
    ("READONLY", "is a read-only replica. Point DUCTOR['REDIS_URL'] at the master, or use Sentinel to find it."),
    ("WRONGPASS", "refuses the user name or password. Correct the credentials in DUCTOR['REDIS_URL']."),
    ("NOAUTH", "wants a password and DUCTOR['REDIS_URL'] gives none: write redis://:password@host:port/0."),
    ("NOPERM", "does not permit this user a command or key that Ductor needs: {detail}. Widen the user's ACL."),
    ("MISCONF", "cannot write its data to disk and refuses writes. Free its disk; its log says more."),
    ("MOVED", "is a node of a cluster. Clusters are not supported yet: use one server, or Sentinel."),
    ("CROSSSLOT", "is a node of a cluster. Clusters are not supported yet: use one server, or Sentinel."),
    ("cluster mode", "is a node of a cluster. Clusters are not supported yet: use one server, or Sentinel."),
    ("unknown command", "lacks a command that Ductor needs: {detail}. Valkey or Redis 7.0 is the oldest that works."),
    ("DB index is out of range", "has no database of this number. Correct the number in DUCTOR['REDIS_URL']."),
    ("DENIED", "runs in protected mode and refuses connections from elsewhere; give it a password and use it."),
)
CODES: tuple[tuple[type[redis_errors.RedisError], str], ...] = (
    (redis_errors.BusyLoadingError, "LOADING"),
    (redis_errors.MasterDownError, "MASTERDOWN"),
    (redis_errors.OutOfMemoryError, "OOM"),
    (redis_errors.ReadOnlyError, "READONLY"),
    (redis_errors.NoPermissionError, "NOPERM"),
    (redis_errors.ClusterCrossSlotError, "CROSSSLOT"),
    (redis_errors.MovedError, "MOVED"),
    (redis_errors.TryAgainError, "TRYAGAIN"),
    (redis_errors.ClusterDownError, "CLUSTERDOWN"),
)
"""redis-py takes the code off the message when it has a class for it; more special classes stand first."""
TLS_SIGNS = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "SSL")


def translate(error: redis_errors.RedisError, label: str) -> StoreError:
    """Our exception for one of redis-py's. `label` is the address without credentials."""
    detail = " ".join(str(error).split())
    code = next((code for kind, code in CODES if isinstance(error, kind)), "")
    if isinstance(error, redis_errors.AuthenticationError):
        # "NOAUTH Authentication required.", with or without its code.
        code = "NOAUTH" if "required" in detail.lower() else "WRONGPASS"
    elif isinstance(error, redis_errors.AuthorizationError):
        code = "NOPERM"
    for table, kind in ((MISCONFIGURED, StoreMisconfigured), (UNAVAILABLE, StoreUnavailable)):
        for sign, meaning in table:
            if code == sign or (not code and _has(detail, sign)):
                return kind(f"The store at {label} {meaning.format(detail=detail)}")
    if isinstance(error, redis_errors.TimeoutError):
        return StoreUnavailable(
            f"The store at {label} did not answer in time ({detail}). What was sent may or may not have been done; "
            "sending it again is safe."
        )
    if isinstance(error, redis_errors.ConnectionError):
        if any(sign in detail for sign in TLS_SIGNS):
            return StoreMisconfigured(
                f"The store at {label} and this process do not agree on TLS ({detail}). rediss:// is for a server with "
                "TLS, redis:// for one without; `ssl_ca_certs` names the authority that signed its certificate."
            )
        return StoreUnavailable(
            f"The store at {label} cannot be reached ({detail.rstrip('.')}). Is the server running?"
        )
    return StoreError(f"The store at {label} refused a command: {detail}")


def _has(detail: str, sign: str) -> bool:
    # A code stands first, in capitals; a phrase stands anywhere.
    return detail.startswith(f"{sign} ") if sign.isupper() else sign in detail


@contextmanager
def translating(label: Callable[[], str]) -> Iterator[None]:
    """Turn redis-py's exceptions of the block into Ductor's. Around `await` as well."""
    try:
        yield
    except redis_errors.DataError:
        # A value of a wrong type was handed to redis-py: a defect of the caller, not of the store.
        raise
    except redis_errors.RedisError as error:
        raise translate(error, label()) from error
