"""What Ductor is to reach beside its peers, and whether it does. Pure: from rows to verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from queueapp.bench.peers.results import Row, drain_name, share_name
from queueapp.bench.peers.roster import OURS, PYTHON_PEERS, STRONGEST
from queueapp.bench.statistics import ratio

OUR_FIGURES = (
    "enqueue_single_per_s",
    "enqueue_bulk_per_s",
    "drain_per_s",
    "drain_two_workers_per_s",
    "drain_async_per_s",
    "start_ms_p50",
    "start_ms_p99",
    "bytes_per_job",
)
SCALING_CPUS = 4
"""Two workers are only held to something where they and the server have processors of their own."""
LONG_MS = (5, 10, 20)
"""Tasks that take so long are to fill the slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target: what was found, what is wanted, and whether it is met; None where nobody can say."""

    figure: str
    what: str
    value: float | None
    wanted: float
    at_most: bool = False
    unit: str = "x"
    whom: str = ""
    """Who was compared with, or why there is no verdict."""
    judged: bool = True

    @property
    def met(self) -> bool | None:
        if self.value is None or not self.judged:
            return None
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted

    def line(self) -> str:
        """For the table of targets."""
        word = {True: "met", False: "MISSED", None: "not judged"}[self.met]
        found = "–" if self.value is None else _number(self.value, self.unit)
        return f"{word:<10} {found:>11}  {self._wanted():<18} {self.what}{f' ({self.whom})' if self.whom else ''}"

    def sentence(self) -> str:
        """For a target that was missed."""
        assert self.value is not None
        what = self.what[0].upper() + self.what[1:] + (f" ({self.whom})" if self.whom else "")
        return f"{what}: {_number(self.value, self.unit)}; {self._wanted()} is wanted."

    def _wanted(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {_number(self.wanted, self.unit)}"


def _number(value: float, unit: str) -> str:
    match unit:
        case "x":
            return f"{value:.2f}x"
        case "%":
            return f"{value * 100:.1f} %"
        case "ms":
            return f"{value:.2f} ms"
    return f"{value:,.0f}{unit}"


def judge(rows: Sequence[Row], cpus: int) -> list[Verdict]:
    """All targets, in the order in which they are told. `rows` are those of one persistence."""
    return list(_verdicts({row["peer"]: row for row in rows}, cpus))


def _verdicts(rows: dict[str, Row], cpus: int) -> Iterator[Verdict]:
    ours = rows[OURS]
    others = [name for name in rows if name != OURS]

    def beside(
        figure: str, name: str, peers: Sequence[str], what: str, wanted: float, *, less: bool = False
    ) -> Verdict:
        """Our figure as a multiple of the best one among `peers`; of memory, the other way round: ours is in front."""
        pick: Callable[..., tuple[float, str]] = min if less else max
        found = [(rows[peer][name], rows[peer]["title"]) for peer in peers if rows.get(peer, {}).get(name) is not None]
        if not found or ours.get(name) is None:
            return Verdict(figure=figure, what=what, value=None, wanted=wanted, at_most=less, whom="not measured")
        value, title = pick(found)
        return Verdict(
            figure=figure,
            what=what,
            value=ratio(ours[name], value),
            wanted=wanted,
            at_most=less,
            whom=f"beside {title}",
        )

    def alone(name: str, what: str, wanted: float, unit: str, *, at_most: bool = False) -> Verdict:
        return Verdict(figure=name, what=what, value=ours.get(name), wanted=wanted, at_most=at_most, unit=unit)

    yield beside("ratio_drain_bullmq", "drain_per_s", [STRONGEST], "drain, no-op", 2.5)
    yield beside("ratio_drain_best_python", "drain_per_s", PYTHON_PEERS, "drain, no-op, best in Python", 8)
    yield alone("drain_per_s", "drain, no-op", 10_000, "/s")
    yield Verdict(
        figure="ratio_two_workers",
        what="drain, no-op, two workers",
        value=_ratio(ours, "drain_two_workers_per_s", "drain_per_s"),
        wanted=1.5,
        whom="beside one" if cpus >= SCALING_CPUS else f"beside one, on {cpus} processors",
        judged=cpus >= SCALING_CPUS,
    )
    yield Verdict(
        figure="ratio_async",
        what="drain, no-op, coroutines",
        value=_ratio(ours, "drain_async_per_s", "drain_per_s"),
        wanted=1,
        whom="beside threads",
    )
    for ms in LONG_MS:
        yield alone(share_name(ms), f"drain, {ms} ms, of what the slots allow", 0.95, "%")
        yield beside(f"ratio_drain_{ms}ms_best", drain_name(ms), others, f"drain, {ms} ms, best of all", 1)
    single = "enqueue one by one, best in Python"
    yield beside("ratio_enqueue_single_best_python", "enqueue_single_per_s", PYTHON_PEERS, single, 1.5)
    yield beside("ratio_enqueue_bulk_bullmq", "enqueue_bulk_per_s", [STRONGEST], "enqueue in bulk", 3)
    yield alone("enqueue_bulk_per_s", "enqueue in bulk", 30_000, "/s")
    yield alone("start_ms_p50", "start, idle, p50", 1.5, "ms", at_most=True)
    yield alone("start_ms_p99", "start, idle, p99", 5, "ms", at_most=True)
    yield alone("bytes_per_job", "memory of a waiting job", 400, " bytes", at_most=True)
    yield beside("ratio_bytes_best", "bytes_per_job", others, "memory of a waiting job, least of all", 1, less=True)


def _ratio(row: Row, above: str, below: str) -> float | None:
    return ratio(row[above], row[below]) if above in row and below in row else None
