"""Policies by name, with a parameter."""

from __future__ import annotations

import pytest

from queueapp.bench.arms import label, made, named
from queueapp.policies.aging import Aging
from queueapp.policies.edf import Edf
from queueapp.policies.registry import POLICIES


def test_all_are_those_of_a_pool() -> None:
    assert named("all") == sorted(POLICIES)
    assert {name: type(made(name)) for name in POLICIES} == POLICIES


def test_a_parameter_follows_the_name() -> None:
    assert named("wfq, aging:0.5,edf:latest_start,wfq") == ["wfq", "aging:0.5", "edf:latest_start"]
    half, latest = made("aging:0.5"), made("edf:latest_start")
    assert (isinstance(half, Aging) and half.step_ms, isinstance(latest, Edf) and latest.by) == (500, "latest_start")
    assert [label(name) for name in ("wfq", "aging:0.5")] == ["wfq", "aging_0.5"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fare", "'fare' is no policy: give some of aging, "),
        ("wfq:2", "'wfq:2' is no policy: give some of"),
        ("aging:", "'aging:' is no policy: give aging:SECONDS from 0.001 to 86400"),
        ("aging:0", "'aging:0' is no policy: give aging:SECONDS"),
        ("aging:nan", "'aging:nan' is no policy: give aging:SECONDS"),
        ("edf:cost", "'edf:cost' is no policy"),
    ],
)
def test_others_are_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        named(text)
