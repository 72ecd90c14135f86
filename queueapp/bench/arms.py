"""Policies by the names that a simulation is given: those of a pool, with the parameter that a pool may set. Pure.

`edf:latest_start` is what `edf_by` sets, `aging:5` the seconds of `aging_step_seconds`.
"""

from __future__ import annotations

from queueapp.policies.aging import Aging
from queueapp.policies.edf import Edf
from queueapp.policies.protocol import Policy
from queueapp.policies.registry import POLICIES

ALL = "all"
LEAST_STEP_S, MOST_STEP_S = 0.001, 86_400
LATEST_START = "edf:latest_start"


def named(text: str) -> list[str]:
    """The policies of `a,b` or `all`. ValueError names the one that does not exist, and those that do."""
    found = sorted(POLICIES) if text == ALL else list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in found:
        made(name)
    return found


def made(name: str) -> Policy:
    """The policy of this name. ValueError where there is none."""
    if name in POLICIES:
        return POLICIES[name]()
    if name == LATEST_START:
        return Edf(by="latest_start")
    kind, _, seconds = name.partition(":")
    if kind == "aging":
        return Aging(step_ms=max(1, round(_step_s(name, seconds) * 1000)))
    told = f"give some of {', '.join(sorted(POLICIES))}, {LATEST_START}, aging:SECONDS, or {ALL}"
    raise ValueError(f"{name!r} is no policy: {told}")


def label(name: str) -> str:
    """The name in figures, rows and files."""
    return name.replace(":", "_")


def _step_s(name: str, seconds: str) -> float:
    try:
        step_s = float(seconds)
    except ValueError:
        step_s = 0.0
    if not LEAST_STEP_S <= step_s <= MOST_STEP_S:
        raise ValueError(f"{name!r} is no policy: give aging:SECONDS from {LEAST_STEP_S:g} to {MOST_STEP_S}")
    return step_s
