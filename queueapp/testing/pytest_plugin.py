"""The pytest plugin (entry point `ductor`): fixtures, and a block in front of the store for tests that use none.

Loaded in every test run of an environment in which Ductor is installed. It imports neither Django nor the rest of
Ductor before a test runs in a process whose Django has the app `queueapp`, and does nothing in any other.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from queueapp.testing.recorder import Recorder
    from queueapp.testing.server import Ductor

MESSAGE = (
    "Tests do not reach the store unless they ask for one. Use the fixture ductor_recorded (jobs are recorded, nothing "
    "runs), ductor_immediate (bodies run at once) or ductor (a real store of the test's own, and drain()); without "
    "fixtures queueapp.testing.recorded(), immediate() or throwaway_store(). The ini option ductor_block = false turns "
    "this off."
)

_refused_late: list[BaseException] = []
"""Sends after commit that the block refused in the running test: nobody else tells the test of them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("ductor_block", "Keep tests that use no fixture of Ductor away from its store", "bool", True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _refused_late.clear()
    if _is_installed() and item.config.getini("ductor_block"):
        _start_block()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    answer = yield
    if _refused_late:
        raise _refused_late[0]
    return answer


def pytest_unconfigure(config: pytest.Config) -> None:
    # Only what was loaded can have something to put away.
    if blocking := sys.modules.get("queueapp.testing.blocking"):
        blocking.block.stop()
    if server := sys.modules.get("queueapp.testing.server"):
        server.stop_server()


@pytest.fixture
def ductor() -> Iterator[Ductor]:
    """A real store of the test's own, empty; `drain()` runs what waits in it."""
    from queueapp.errors import NoStore
    from queueapp.testing.server import server_url, throwaway_store

    try:
        server_url()
    except NoStore as error:
        pytest.fail(f"The fixture ductor needs a server. {error}", pytrace=False)
    with throwaway_store() as given:
        yield given


@pytest.fixture
def ductor_recorded() -> Iterator[Recorder]:
    """Jobs are recorded, nothing runs, no server is needed. Gives the list of them."""
    from queueapp.testing.modes import recorded

    with recorded() as recorder:
        yield recorder


@pytest.fixture
def ductor_immediate() -> Iterator[Recorder]:
    """Bodies run at once, no server is needed. Gives the list of the jobs."""
    from queueapp.testing.modes import immediate

    with immediate() as recorder:
        yield recorder


def _is_installed() -> bool:
    """Whether this process has a Django that is set up and has our app. Imports nothing."""
    registry = getattr(sys.modules.get("django.apps"), "apps", None)
    return registry is not None and registry.ready and registry.is_installed("queueapp")


def _start_block() -> None:
    from queueapp.signals import enqueue_failed
    from queueapp.testing.blocking import block

    block.start(MESSAGE)
    enqueue_failed.connect(_note_refusal, dispatch_uid="queueapp.testing.pytest_plugin")


def _note_refusal(*, error: BaseException, **_: Any) -> None:
    from queueapp.testing.blocking import StoreBlocked

    if isinstance(error, StoreBlocked):
        _refused_late.append(error)
