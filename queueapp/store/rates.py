"""How rates, and how much may wait, are written into the store's `limits`: of those who come in
(lua/include/front.lua), and of those who start (lua/include/rates.lua). Pure.
"""

from __future__ import annotations

from queueapp.store.configuration import Rate


def pack_front(rate: Rate | None, backlog_limit: int | None = None) -> str:
    """`rate|period ms|burst|most waiting jobs`, what is not limited being empty; "" when nothing is."""
    if rate is None and backlog_limit is None:
        return ""
    told = f"{rate.rate}|{rate.period_ms}|{rate.burst}" if rate is not None else "||"
    return f"{told}|{'' if backlog_limit is None else backlog_limit}"


def unpack_front(packed: bytes | None) -> tuple[Rate | None, int | None]:
    """What `pack_front` was given."""
    if packed is None:
        return None, None
    rate, period_ms, burst, most = packed.decode().split("|")
    told = Rate(rate=int(rate), period_ms=int(period_ms), burst=int(burst)) if rate else None
    return told, int(most) if most else None


def pack_dispatch(rate: Rate | None) -> str:
    """`rate,period ms,burst` of a dispatch rate; "" when there is none."""
    return "" if rate is None else f"{rate.rate},{rate.period_ms},{rate.burst}"


def unpack_dispatch(packed: str) -> Rate | None:
    """What `pack_dispatch` was given."""
    if not packed:
        return None
    rate, period_ms, burst = packed.split(",")
    return Rate(rate=int(rate), period_ms=int(period_ms), burst=int(burst))
