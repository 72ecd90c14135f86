"""When a job is sent: at once, or after the commit of every transaction that is open around the call.

*Inside a transaction* means: some open connection of this thread has an atomic block that is not TestCase's own. The
send waits for all of them; one that rolls back (or the savepoint of it in which the call stood) takes the job along.
`on_commit` is never called where no block is open: it would run at once, and raises in asynchronous code. Under
`set_autocommit(False)` there is no block and no hook, so jobs go out at once, as Django's documentation says of
`on_commit`.

Asynchronous code has connections of its own (Django keeps them apart even in one thread) and cannot open blocks. A
block around `async_to_sync(...)` is therefore not seen by an `aenqueue` inside: call `enqueue` there, which sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from queueapp.conf import settings


def open_transactions() -> list[BaseDatabaseWrapper]:
    """The connections of this thread on which a commit is still to come."""
    return [
        connection
        for connection in connections.all(initialized_only=True)
        if any(not _is_test_case(block) for block in connection.atomic_blocks)
    ]


def defer(send: Callable[[Sequence[str]], None], on_commit: bool | None, database: str | None = None) -> bool:
    """Arrange that `send` runs after commit; False when there is nothing to wait for and the caller sends itself.

    `on_commit` and `database` are the task's options. `on_commit=None` takes `ENQUEUE_ON_COMMIT`. `database` names the
    one connection whose transaction is waited for; None waits for all that are open. `send` gets the aliases whose
    commits it waited for, and must not raise.
    """
    if not (settings.enqueue_on_commit if on_commit is None else on_commit):
        return False
    waiting_for = [connection for connection in open_transactions() if database in (None, connection.alias)]
    if not waiting_for:
        return False
    aliases = [connection.alias for connection in waiting_for]
    missing = set(aliases)

    def committed(alias: str) -> None:
        # Counted, not looked up again: after a rollback elsewhere nothing is open there either. A second call does
        # nothing: helpers of a host's tests and Django's own may both run what a TestCase never commits.
        if alias in missing:
            missing.discard(alias)
            if not missing:
                send(aliases)

    for connection in waiting_for:
        # robust: an exception in a callback would cost the host its later callbacks.
        connection.on_commit(AfterCommit(committed, connection.alias), robust=True)
    return True


class AfterCommit:
    """`committed(alias)` with a name, because Django writes `__qualname__` of a callback that raised into its log."""

    def __init__(self, committed: Callable[[str], None], alias: str) -> None:
        # Of the instance: in the class's body it would name the class.
        self.__qualname__ = "queueapp.producer.transactions.defer"
        self._committed = committed
        self._alias = alias

    def __call__(self) -> None:
        self._committed(self._alias)


def _is_test_case(block: object) -> bool:
    return bool(getattr(block, "_from_testcase", False))
