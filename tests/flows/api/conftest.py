"""The API of flows over HTTP, opened by a host as that of the queue is in its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.flows import host as tasks
from tests.unit.api.conftest import ask, opened, signed_in

__all__ = ["ask", "opened", "signed_in"]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    tasks.RAN.clear()
    tasks.FAIL.clear()
    yield
    tasks.FAIL.clear()


@pytest.fixture
def begin(opened: None, ask: Callable[..., Any]) -> Callable[..., str]:
    """Starts a run over HTTP; its id."""

    def start(flow: str, *args: object, tenants: str = "acme", **kwargs: object) -> str:
        answer = ask("POST", f"flows/{flow}/runs/", tenants=tenants, body={"args": args, "kwargs": kwargs})
        assert answer.status_code == 202, answer.content
        run_id: str = answer.json()["id"]
        return run_id

    return start
