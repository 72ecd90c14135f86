"""`manage.py ductor tenants POOL`: what each tenant had of a pool, against what it was entitled to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from queueapp.cli.command import names, number, whole
from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, table
from queueapp.inspection.fairness import WINDOW_LEAST_S, WINDOW_S, Certificate, TenantShare, certificate
from queueapp.inspection.pools import all_pools, require
from queueapp.store import shards
from queueapp.store.configuration import Rate
from queueapp.store.service import WINDOW_MAX_S

COUNT = 50
WAITS = ("own limits", "in line")
"""What a leased job waited for, on the average."""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("tenants", help="what each tenant had of a pool, against what it was entitled to")
    parser.add_argument("pool", nargs="?", default="default", metavar="POOL", help="which pool (default: default)")
    parser.add_argument(
        "--window",
        type=number(WINDOW_LEAST_S, WINDOW_MAX_S),
        default=WINDOW_S,
        metavar="SECONDS",
        help=f"how far to look back (default: {WINDOW_S})",
    )
    parser.add_argument("--tenant", type=names, default=[], metavar="KEY[,KEY]", help="only of these tenants")
    parser.add_argument(
        "--count", type=whole(1, 10_000), default=COUNT, metavar="N", help=f"show N at most (default: {COUNT})"
    )
    json_option(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    require([options["pool"]], all_pools())
    wanted = options["tenant"]
    found = certificate(options["pool"], options["window"], tenants=wanted)
    told = [one for one in found.tenants if not wanted or one.tenant in wanted]
    shown = told[: options["count"]]
    if options["json"]:
        return as_json(
            {**asdict(found), "tenants": [asdict(one) for one in shown], "not_shown": len(told) - len(shown)}
        )
    return text(found, shown, len(told) - len(shown), shards.reads(found.pool).configured().rule)


def text(found: Certificate, shown: list[TenantShare], not_shown: int, rule: str = "") -> str:
    """A line for each of `shown`, then the pool, with its policy as `rule` tells it, parameter included."""
    return "\n".join(filter(None, [_tenants(found, shown), *_more(found, not_shown, rule or found.policy)]))


def _tenants(found: Certificate, shown: list[TenantShare]) -> str:
    bound = found.policy in {"tiered", "wfq", "ring"}
    unit = "jobs" if found.policy == "ring" else found.unit
    minima = any(one.min_share for one in shown)
    rates = any(one.dispatch_rate for one in shown)
    waited = any(sum(one.waits_s.values()) for one in shown)
    return table(
        (
            *("tenant", "state", "weight", *(("min",) if minima else ()), *(("rate",) if rates else ()), "waiting"),
            *("running", "leased", f"served {found.unit}", "share", "entitled"),
            *("of it", "first waits", *(WAITS if waited else ()), *((f"lag {unit}", "bound") if bound else ())),
        ),
        [
            (
                *(one.tenant, one.state, f"{one.weight:g}", *((one.min_share or "",) if minima else ())),
                *(((_rate(one.dispatch_rate),) if rates else ()) + (one.waiting,)),
                *(one.active, one.jobs, round(one.units)),
                *(_percent(one.share), _percent(one.entitled_share), _percent(one.ratio), _seconds(one.wait_s)),
                *((_each(one, "limits"), _each(one, "line")) if waited else ()),
                *((_whole(one.lag), _whole(one.lag_bound)) if bound else ()),
            )
            for one in shown
        ],
    )


def _more(found: Certificate, not_shown: int, rule: str) -> list[str]:
    if not found.tenants:
        return [f"Nobody had work in the last {found.window_s:.0f} s."]
    states = ", ".join(f"{number} {state}" for state, number in found.states.items() if number)
    beyond = [one.tenant for one in found.tenants if one.beyond_bound]
    return [
        f"… and {not_shown} more; --count shows them" if not_shown else "",
        f"{found.pool} ({rule}), last {found.window_s:.0f} s: {found.jobs} jobs, "
        f"{found.units:.0f} {found.unit} of service. {states}.",
        f"Jain's index: {found.jain_entitled:.3f} of what each was entitled to, {found.jain_service:.3f} of service "
        f"per weight, {found.jain_count:.3f} of jobs.",
        f"Further behind than {found.policy} promises: {', '.join(beyond[:10])}." if beyond else "",
        "A large pool: a share of its tenants was looked at"
        f"{f', {found.left_out} with waiting jobs were not' if found.left_out else ''}; the next look takes others."
        if not found.whole
        else "",
    ]


def _each(one: TenantShare, part: str) -> str | None:
    """What a job waited for that, on the average of those leased."""
    return _seconds(one.waits_s[part] / one.jobs) if one.jobs else None


def _rate(rate: Rate | None) -> str:
    """Jobs that may start: `2/1 s`."""
    return "" if rate is None else f"{rate.rate:,}/{rate.period_ms / 1000:g} s"


def _percent(part: float | None) -> str | None:
    return None if part is None else f"{part:.1%}"


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f} s"


def _whole(units: float | None) -> str | None:
    return None if units is None else f"{units:.0f}"
