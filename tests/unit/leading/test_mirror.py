"""What a leader leaves for its successor: kept whole or not at all, and told apart when it is of no use."""

from __future__ import annotations

import json
import logging
from decimal import Decimal

import pytest

from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES
from queueapp.scheduler.mirror import Mirror


def ranked(name: str = "drr") -> Mirror:
    mirror = Mirror(POLICIES[name]())
    mirror.rank(Candidate(id="1", tenant="ant", seq=1), 1.0)
    return mirror


def test_what_could_not_be_written_is_still_to_be_written() -> None:
    mirror = ranked()
    mirror.root.state["ant"] = Decimal("1.5")  # type: ignore[assignment]  # wrong on purpose
    with pytest.raises(TypeError):
        mirror.dump()
    assert mirror.changed
    mirror.root.state["ant"] = 1.5
    assert json.loads(mirror.dump())["root"]["state"] == {"ant": 1.5}
    assert not mirror.changed


def test_a_successor_goes_on_from_it(caplog: pytest.LogCaptureFixture) -> None:
    assert ranked().restore(ranked().dump())
    assert caplog.text == ""


def test_another_policy_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert not ranked("lottery").restore(ranked("drr").dump())
    assert [(each.levelname, each.__dict__["kept"]) for each in caplog.records] == [("INFO", "drr")]


@pytest.mark.parametrize("blob", [b"{", b"[]", b"{}", b'{"policy": "drr"}', b'{"policy": "drr", "root": 7}'])
def test_what_cannot_be_read_is_told_as_that(caplog: pytest.LogCaptureFixture, blob: bytes) -> None:
    assert not ranked().restore(blob)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "cannot be read" in caplog.text


def test_a_policy_that_keeps_pairs_is_told_as_that(caplog: pytest.LogCaptureFixture) -> None:
    mirror = ranked()
    mirror.root.state["ant"] = (1.0, 2)  # type: ignore[assignment]  # wrong on purpose
    assert not ranked().restore(mirror.dump())
    assert "cannot be read" in caplog.text
