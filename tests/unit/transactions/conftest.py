"""How many jobs the store has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queueapp.store.reads import Reads


@pytest.fixture
def waiting(reads: Reads) -> Callable[[], int]:
    return lambda: reads.overview().waiting
