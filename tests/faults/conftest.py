"""The rig: real processes whose connection to the store goes over a wire that the test can strike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.wire import Wire
from tests.integration.conftest import _migrated, directory, manage, own_store, worker

__all__ = ["_migrated", "directory", "manage", "own_store", "worker"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(item.config.rootpath / "tests" / "faults"):
            item.add_marker("faults")


@pytest.fixture
def wire(redis_url: str) -> Iterator[Wire]:
    made = Wire(redis_url)
    yield made
    made.close()
