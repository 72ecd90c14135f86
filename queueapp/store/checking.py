"""The transitions that recount a shard: `verify` for one at rest, `fsck` for one at work. Part of `Store`."""

from __future__ import annotations

from collections.abc import Sequence

from queueapp.store import calls
from queueapp.store.dispatching import Dispatching
from queueapp.store.records import Difference, Share


class Checking(Dispatching):
    """Recounts of one shard. `recount.Recount` knows in which order `fsck` is to be called."""

    def verify(self) -> list[str]:
        """Recounts a quiet shard; the violations found. For tests: it reads every key."""
        return self._run(self._call("verify", None, calls.words))

    def fsck(self, part: str, subjects: Sequence[tuple[str, str]], *, mend: bool, limit: int) -> Share:
        """A share of the recount of a live shard; with `mend`, what is proven to be wrong in it is put right."""
        now_ms, findings, rest, facts = self._run(
            self._call("fsck", {"subjects": subjects}, part=part, mend=int(mend), limit=limit)
        )
        texts = [[_text(value) for value in row] for row in findings]
        return Share(
            now_ms=now_ms,
            findings=[
                Difference(kind=kind, name=name, what=what, word=word, subject=subject, cursor=cursor)
                for kind, name, what, word, subject, cursor in texts
            ],
            rest=[(_text(name), _text(cursor)) for name, cursor in rest],
            facts=[tuple(_text(value) for value in fact) for fact in facts],
        )


def _text(value: bytes | int) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
