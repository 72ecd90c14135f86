"""What was found of all peers under one persistence, and the rows that are told of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from queueapp.bench.peers.roster import SLOTS, Peer
from queueapp.bench.statistics import median

MS = (0, 1, 2, 5, 10, 20)
"""How long the tasks take that are drained."""

Row = dict[str, Any]
"""One peer: `peer`, `title`, `version`, `aof`, its figures, `variants` with the figures of each, `not_measured`."""


def drain_name(ms: int) -> str:
    return f"drain_{ms}ms_per_s" if ms else "drain_per_s"


def share_name(ms: int) -> str:
    """The figure that says which part of what the slots allow was drained."""
    return f"drain_{ms}ms_share"


def occupancy(ms: int) -> float:
    """Jobs a second that the slots allow."""
    return SLOTS * 1_000 / ms


@dataclass(slots=True, kw_only=True)
class Results:
    """Collects medians; `rows` gives them."""

    aof: str
    peers: Sequence[Peer]
    """Whose rows are given, in this order."""
    versions: Mapping[str, str | None]
    unavailable: Mapping[str, str]
    _found: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    _failed: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(
        self,
        peer: Peer,
        variant: str,
        what: str,
        values: Sequence[Mapping[str, float]],
        failed: str | None,
        *,
        of_worker: bool = True,
    ) -> None:
        """Of each figure the median. With `failed`, the reason: there is none; `of_worker`: this variant has none."""
        if failed is not None:
            name = what if len(peer.variants) == 1 or not of_worker else f"{what} ({peer.variants[variant]})"
            self._failed.setdefault(peer.name, {})[name] = failed
            return
        figures = self._found.setdefault((peer.name, variant), {})
        for name in values[0]:
            figures[name] = median(value[name] for value in values)

    def rows(self) -> list[Row]:
        """One for each peer, whether or not it could be installed."""
        return [self._row(peer) for peer in self.peers]

    def _row(self, peer: Peer) -> Row:
        row: Row = {
            "peer": peer.name,
            "title": peer.title,
            "version": self.versions.get(peer.name),
            "aof": self.aof,
        }
        if peer.name in self.unavailable:
            return row | {"not_measured": {"everything": self.unavailable[peer.name]}}
        variants = {
            words: self._found[peer.name, variant]
            for variant, words in peer.variants.items()
            if (peer.name, variant) in self._found
        }
        row |= best(list(variants.values()))
        for ms in MS[1:]:
            if drain_name(ms) in row:
                row[share_name(ms)] = row[drain_name(ms)] / occupancy(ms)
        row["variants"] = variants
        if peer.name in self._failed:
            row["not_measured"] = self._failed[peer.name]
        return row


def best(variants: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each figure the better one; of starts, all of the variant with the lower median."""
    found: dict[str, float] = {}
    for figures in variants:
        for name, value in figures.items():
            lower_is_better = name == "bytes_per_job"
            if name not in found or (value < found[name]) == lower_is_better:
                found[name] = value
    starts = [figures for figures in variants if "start_ms_p50" in figures]
    if starts:
        fastest = min(starts, key=lambda figures: figures["start_ms_p50"])
        found |= {name: value for name, value in fastest.items() if name.startswith("start_")}
    return found
