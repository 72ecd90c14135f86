"""What surrounds the body of a step in a worker: is it still wanted, and how did it end?

The body is that of the host's own task, with its own options; the queue retries it as any other. What it returned is
recorded before the queue hears of it, in one transaction with the tick that follows: a worker that dies before that has
done nothing that counts, and one that dies after it has nothing left to do. (tests/flows/test_kills.py)
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any

from asgiref.sync import sync_to_async

from flows import models, reports, runtime
from flows.inputs import step_key
from flows.rows import News
from flows.snapshot import Ending
from flows.values import to_json
from flows.waking import leave_word

NEWS_S = 0.01
"""So long after its commit what this process has written of a run is believed unread: time enough for a slot to begin
the body, and little for others to cancel the run, or to carry out the same command. A process may be held up at any
point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentStep:
    """The step that runs here."""

    run_id: str
    step: str
    attempt: int
    """Grows with each hand-over to the queue; the queue's own retries are within one."""
    index: int | None = None
    """Of an item of a map."""

    @property
    def key(self) -> str:
        """The same in every try, and in no other step of any run: to do something once, whatever happens."""
        return step_key(self.run_id, self.step, self.index)


_current: ContextVar[CurrentStep | None] = ContextVar("step of a flow", default=None)


def current_step() -> CurrentStep | None:
    """The step whose body calls this; None outside of one."""
    return _current.get()


class StepWrapper:
    """See `queueapp.extensions.Wrapper`. Facts are run, step, attempt and index, -1 for what is no item.

    A body that begins here the moment it was handed over is wanted, by what was just written, and comes with that:
    neither it nor the tick that follows its end has to read the run. Whoever else has it run, or was held up on the
    way, asks first.

    A job of a run leaves no result of its own: what its body returned stands in the run, however large it is, and a
    step that has completed must be no job that failed (MAX_RESULT_BYTES; tests/flows/test_large_results.py).
    """

    def around(self, facts: Any, body: Callable[[], Any], local: News | None = None) -> None:
        current = _read(facts)
        if not _is_news(local) and not reports.is_wanted(*facts):
            self._unwanted(facts)
            return
        token = _current.set(current)
        try:
            value = body()
        finally:
            _current.reset(token)
        self._completed(facts, value, local)

    async def aaround(self, facts: Any, body: Callable[[], Any], local: News | None = None) -> None:
        current = _read(facts)
        if not _is_news(local) and not await sync_to_async(reports.is_wanted)(*facts):
            await sync_to_async(self._unwanted)(facts)
            return
        token = _current.set(current)
        try:
            value = await body()
        finally:
            _current.reset(token)
        await sync_to_async(self._completed)(facts, value, local)

    def ended(self, facts: Any, ending: Ending, error: str) -> None:
        runtime.report_and_advance(_end(facts, ending, error=error))

    def _unwanted(self, facts: Any) -> None:
        """Its end was told, and the job came back: its worker may have died before anything followed from that."""
        if models.Run.objects.filter(pk=facts[0]).exclude(state__in=models.Run.ENDED).exists():
            leave_word(facts[0])

    def _completed(self, facts: Any, value: object, local: News | None) -> None:
        output = to_json(value, f"what step {facts[1]} returned")
        runtime.report_and_advance(_end(facts, "completed", output=output), local.seen if local is not None else None)


def _is_news(local: News | None) -> bool:
    """Whether a body may begin without asking."""
    return local is not None and monotonic() - local.since_s < NEWS_S


def _end(facts: Any, ending: Ending, *, output: Any = None, error: str = "") -> reports.End:
    run_id, step, attempt, index = facts
    return reports.End(
        run_id=run_id, step=step, attempt=attempt, index=index, ending=ending, output=output, error=error
    )


def _read(facts: Any) -> CurrentStep:
    run_id, step, attempt, index = facts
    return CurrentStep(run_id=run_id, step=step, attempt=attempt, index=None if index < 0 else index)
