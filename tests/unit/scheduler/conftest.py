"""The lease that candidates want, and the clock of the test."""

from __future__ import annotations

import pytest

from tests.clock import Clock
from tests.unit.scheduler.leases import FakeLead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lead(clock: Clock) -> FakeLead:
    return FakeLead(clock)
