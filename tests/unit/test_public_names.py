"""What `from queueapp import ...` gives: every public name."""

from __future__ import annotations

import pytest

import queueapp


@pytest.mark.parametrize("name", queueapp.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(queueapp, name) is not None


def test_any_other_name_is_no_attribute() -> None:
    assert not hasattr(queueapp, "enqueue_everything")
