"""What `from queueapp import ...` gives: every public name, and a plain word for those that are planned."""

from __future__ import annotations

import pytest

import queueapp
from queueapp.errors import NotYet


@pytest.mark.parametrize("name", queueapp.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(queueapp, name) is not None


@pytest.mark.parametrize("name", ["Debounce", "Singleton", "schedule"])
def test_a_planned_name_says_so(name: str) -> None:
    with pytest.raises(NotYet, match=rf"queueapp\.{name} is planned but not there yet"):
        getattr(queueapp, name)


def test_any_other_name_is_no_attribute() -> None:
    assert not hasattr(queueapp, "enqueue_everything")
