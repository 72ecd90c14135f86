"""What the threads of this process ask of the database, and how long their commits take, told to a listener."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

COMMIT = "_commit"
"""Where every commit of a transaction passes, of whatever database."""


class Listener(Protocol):
    """Called in the thread that asks. Moments are of `time.time`."""

    def queried(self, sql: str, in_transaction: bool, begun_s: float, ended_s: float) -> None:
        """One statement. On SQLite the beginning of a transaction is one; a commit is none."""

    def committed(self, begun_s: float, ended_s: float) -> None:
        """A transaction's commit; that of a statement outside of one is part of it."""


@contextmanager
def heard(listener: Listener) -> Iterator[None]:
    """Connections that are made meanwhile are listened to, for as long as they live; commits those of all threads."""
    listening, commit = True, getattr(BaseDatabaseWrapper, COMMIT)

    def ask(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        in_transaction, begun_s = context["connection"].in_atomic_block, time.time()
        answer = execute(sql, params, many, context)
        if listening:
            listener.queried(sql, in_transaction, begun_s, time.time())
        return answer

    def timed_commit(connection: BaseDatabaseWrapper) -> Any:
        begun_s = time.time()
        answer = commit(connection)
        listener.committed(begun_s, time.time())
        return answer

    def made(connection: BaseDatabaseWrapper, **_: object) -> None:
        connection.execute_wrappers.append(ask)

    connection_created.connect(made)
    setattr(BaseDatabaseWrapper, COMMIT, timed_commit)
    try:
        yield
    finally:
        listening = False
        setattr(BaseDatabaseWrapper, COMMIT, commit)
        connection_created.disconnect(made)
