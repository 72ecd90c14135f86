"""What the suite stands on: the store, and lists of the signals that came."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from queueapp.compat import task_enqueued, task_finished, task_started
from queueapp.store.store import Store
from tests.conformance import jobs


@pytest.fixture(autouse=True)
def _on_a_store(store: Store) -> None:
    """Every test has a store of its own, in which `verify` must find nothing at the end."""
    jobs.contexts.clear()


class Signalled(NamedTuple):
    """One signal: its name, its sender, the job, its status then, and the exception that was being handled."""

    name: str
    sender: type
    id: str
    status: str
    handled: BaseException | None


@pytest.fixture
def signalled() -> Iterator[list[Signalled]]:
    """The three signals as they come, from whatever thread."""
    seen: list[Signalled] = []
    lock = threading.Lock()
    receivers: list[tuple[Any, Any]] = []
    for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def receive(sender: type, task_result: Any, name: str = name, **_: Any) -> None:
            with lock:
                entry = Signalled(name, sender, task_result.id, str(task_result.status), sys.exc_info()[1])
                seen.append(entry)

        signal.connect(receive, weak=False)
        receivers.append((signal, receive))
    yield seen
    for signal, receive in receivers:
        signal.disconnect(receive)
