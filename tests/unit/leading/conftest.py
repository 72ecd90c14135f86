"""A dispatcher of one pool over a store in memory, on the clock of the test."""

from __future__ import annotations

import logging

import pytest

from queueapp.scheduler.dispatching import Dispatcher
from tests.clock import Clock
from tests.model.own_policies import OWN
from tests.unit.leading.fake import FakeDispatch


@pytest.fixture
def store() -> FakeDispatch:
    return FakeDispatch()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leader(store: FakeDispatch, clock: Clock) -> Dispatcher:
    return Dispatcher("pool", store, lambda: store, own=lambda: OWN, clock=clock)


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "queueapp.scheduler")
