"""Sends that wait for a commit which never comes: those inside the transaction that a TestCase rolls back at its end.

They stand in `connection.run_on_commit`. Sent are only Ductor's own, only once every atomic block of the code under
test is closed, and only those of the test itself: what `setUpTestData` left there stays, because a job that was made
once for a class of tests would otherwise run in whichever test comes first. A callback that was run does nothing when
`captureOnCommitCallbacks(execute=True)` runs it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from django.db import connections

from queueapp.producer import transactions

Callback = Callable[[], object]


def present() -> list[Callback]:
    """The sends that wait now, in this thread."""
    return [
        callback
        for connection in connections.all(initialized_only=True)
        for _, callback, _ in _waiting(connection)
        if _is_send(callback)
    ]


def send(except_for: Collection[Callback] = ()) -> None:
    """Run what waits, as a commit would."""
    if transactions.open_transactions():
        return
    for connection in connections.all(initialized_only=True):
        inside = set(connection.savepoint_ids)
        position = 0
        while position < len(_waiting(connection)):  # a callback may add others
            savepoints, callback, _ = _waiting(connection)[position]
            position += 1
            ours = _is_send(callback) and callback not in except_for
            # A test has a savepoint inside the transaction of its class: what was made in it carries its id.
            if ours and inside <= savepoints:
                callback()


def _waiting(connection: Any) -> list[tuple[set[str], Callback, bool]]:
    """(ids of the savepoints around it, callback, robust). The list itself may be another one after a rollback."""
    waiting: list[tuple[set[str], Callback, bool]] = connection.run_on_commit
    return waiting


def _is_send(callback: object) -> bool:
    return isinstance(callback, transactions.AfterCommit)
