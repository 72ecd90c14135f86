"""What is told of the fairness certificate: a pool's summary to who may speak for every tenant, a tenant's own share to
that tenant.

A tenant never sees another's name or figures. Nor does it see the pool's summary, nor a lag and its bound: in a pool of
two, an index and one's own figures tell the other's, and a bound tells its largest job. Its own share is told, from
which follows what all the others had together.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from queueapp.inspection.fairness import Certificate

SUMMARY = ("window_s", "unit", "units", "jobs", "states", "jain_service", "jain_count", "jain_entitled", "whole")
OWN = ("state", "jobs", "units", "share", "entitled_share", "ratio", "wait_s", "waits_s")


def summary(found: Certificate) -> dict[str, Any]:
    """The pool as a whole."""
    return {name: getattr(found, name) for name in SUMMARY}


def own_share(found: Certificate, tenant: str) -> dict[str, Any] | None:
    """One tenant, which the certificate was asked for."""
    one = found.of(tenant)
    if one is None:
        return None
    told = asdict(one)
    return {"window_s": found.window_s, "unit": found.unit, **{name: told[name] for name in OWN}}
