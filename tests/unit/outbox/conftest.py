"""Who hears of a job that went out, and a store that answers every send with an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queueapp.compat import task_enqueued
from queueapp.errors import StoreError
from queueapp.producer import client, relaying
from queueapp.producer.results import DuctorResult


@pytest.fixture
def announced() -> Iterator[list[DuctorResult]]:
    seen: list[DuctorResult] = []

    def receive(task_result: Any, **_: Any) -> None:
        seen.append(task_result)

    task_enqueued.connect(receive, weak=False)
    yield seen
    task_enqueued.disconnect(receive)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[[StoreError], None]:
    """Make every send be answered with this error."""

    def refuse(error: StoreError) -> None:
        for module in (client, relaying):
            monkeypatch.setattr(module, "send_each", lambda jobs: [error] * len(jobs))

    return refuse
