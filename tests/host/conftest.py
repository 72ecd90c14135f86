"""Tests of `queueapp.testing` as the tests of a host project: the settings name a store that is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test.utils import override_settings

from ductor_project.settings import DUCTOR

NOWHERE = "unix:///nonexistent/the-store-of-the-host.sock"


@pytest.fixture(autouse=True)
def namespace() -> Iterator[str]:
    """In place of the fixture that gives every other test a server: whoever gets here to a store asked for it."""
    with override_settings(
        DUCTOR={**DUCTOR, "REDIS_URL": NOWHERE, "NAMESPACE": "host"}, ROOT_URLCONF="tests.host.shop"
    ):
        yield "host"


@pytest.fixture(autouse=True)
def _nothing_ran() -> Iterator[None]:
    from tests.host.shop import ran

    ran.clear()
    yield
    ran.clear()
