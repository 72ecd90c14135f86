"""Every error that Ductor raises, in one tree.

Each class carries a stable `code` (what logs, metrics and REST answers show) and takes a message that names the
field, the value and the remedy. `REFUSALS` maps the refusal codes of the store's scripts to these classes; a test
compares it with the headers of the scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class DuctorError(Exception):
    """Something that Ductor refused or could not do."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


# -- what a caller got wrong -------------------------------------------------------------------------------------


class InvalidOption(DuctorError, ValueError):
    """An option of `@task` or `.using()` has a value that Ductor refuses."""

    code = "invalid_option"


class NotYet(InvalidOption):
    """An option or setting that is planned but not there yet."""

    code = "not_yet"


class InvalidPolicy(InvalidOption):
    """A policy of your own does not do what a policy must."""

    code = "invalid_policy"


class UnknownPool(InvalidOption):
    """No pool of this name is known."""

    code = "unknown_pool"


class UnknownTask(DuctorError, LookupError):
    """No task of this name is registered here."""

    code = "unknown_task"


class UnknownWrapper(DuctorError, LookupError):
    """A job belongs to a package that is not installed here."""

    code = "unknown_wrapper"


class UnknownTenant(InvalidOption):
    """No tenant of this id has a row, and `UNKNOWN_TENANTS` is "reject"."""

    code = "unknown_tenant"


class UnserialisableArgument(DuctorError, TypeError):
    """An argument or a result cannot be written as JSON without changing it."""

    code = "unserialisable"


class PayloadTooLarge(DuctorError, ValueError):
    """The arguments of a job are larger than `MAX_PAYLOAD_BYTES`."""

    code = "payload_too_large"


class ResultTooLarge(DuctorError, ValueError):
    """The result of a job is larger than `MAX_RESULT_BYTES`."""

    code = "result_too_large"


class IdempotencyConflict(DuctorError):
    """The idempotency key already stands for a job with other arguments."""

    code = "conflict"


class FrontDoorError(DuctorError):
    """A job that may come later: the same call will be accepted once `retry_after` seconds have passed."""

    def __init__(self, message: str | None = None, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = max(0.0, retry_after)
        """Seconds, never negative."""


class Throttled(FrontDoorError):
    """The job came above the rate of its tenant, its lane or one of its keys."""

    code = "throttled"


class BacklogFull(FrontDoorError):
    """The tenant, or the pool, has as many waiting jobs as it may have."""

    code = "backlog_full"


class TenantContextError(DuctorError):
    """The context manager of `TENANT_CONTEXT` failed, so that the body could not run, or not end, for its tenant."""

    code = "tenant_context"


class CountChanged(DuctorError):
    """More jobs match now than when they were counted; nothing was changed."""

    code = "count_changed"

    def __init__(self, message: str | None = None, *, expected: int = 0, number: int = 0, exact: bool = True) -> None:
        least = "" if exact else "at least "
        super().__init__(
            message or f"{least}{number:,} jobs match now, more than the {expected:,} of before; nothing was changed."
        )
        self.expected = expected
        self.number = number
        self.exact = exact


class NotDead(DuctorError):
    """The job is no dead letter, or none any more; nothing was changed."""

    code = "not_dead"


class EditedMeanwhile(DuctorError):
    """Somebody else has edited the arguments of this dead letter since they were read; nothing was changed."""

    code = "edited_meanwhile"

    def __init__(self, message: str | None = None, *, edits: int = 0) -> None:
        super().__init__(message)
        self.edits = edits
        """How often it has been edited by now."""


class KeysWouldChange(DuctorError):
    """With these arguments the job would hold other keys than it does; nothing was changed."""

    code = "keys_would_change"


class NothingEdited(DuctorError):
    """The dead letter has these arguments already; nothing was changed."""

    code = "nothing_edited"


class StillRunning(DuctorError):
    """Jobs of the pool run: drain it first, or force what was asked for."""

    code = "still_running"


class Reopened(DuctorError):
    """The pool was opened again while it was being emptied: jobs may be in it, and this run is over."""

    code = "reopened"


# -- the store ---------------------------------------------------------------------------------------------------


class StoreError(DuctorError):
    """The store refused a command or answered what it must not answer."""

    code = "store_error"
    detail: Sequence[Any] = ()
    """What a script said beside the code of its refusal."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, or cannot take writes now; trying again later is right."""

    code = "store_unavailable"


class StoreMisconfigured(StoreError):
    """The store is there but cannot be used: wrong password, missing right, missing command."""

    code = "store_misconfigured"


class NoStore(StoreError):
    """No store: set REDIS_URL, or run `manage.py stack`."""

    code = "no_store"


class ForeignInstallation(StoreError):
    """The namespace belongs to another installation: another database claimed it first."""

    code = "foreign_installation"


class Upgrading(StoreUnavailable):
    """`manage.py ductor upgrade` is converting this pool's shard; it can be used when that is done."""

    code = "upgrading"


class Obliterating(Upgrading):
    """`manage.py ductor obliterate` is emptying this pool; it can be used when that is done."""

    code = "obliterating"


class SchemaMismatch(StoreError):
    """The shard has another schema number than this release; run `manage.py ductor upgrade` or update the process."""

    code = "schema"


class StaleCall(StoreError):
    """A worker's call came after a later one of the same worker; nothing was changed."""

    code = "stale_call"


class Fenced(StoreError):
    """A leader's write under a superseded term; nothing was changed."""

    code = "fenced"


class OrderChanged(StoreError):
    """A leader ranked or chose for an order of jobs that is over, the policy has changed; nothing was changed."""

    code = "order_changed"


class LeaseHeld(StoreError):
    """Another scheduler holds the lease of leadership."""

    code = "held"

    @property
    def left_ms(self) -> int:
        """Until the lease ends, unless it is renewed."""
        return int(self.detail[0]) if self.detail else 0

    @property
    def watched(self) -> bool:
        """Should its holder die, asking again shows it before the lease ends."""
        return len(self.detail) > 1 and self.detail[1] == 1


class LeaderAbsent(StoreError):
    """The holder of the lease of leadership shows no sign of life; whoever asks once more soon may take the lease."""

    code = "absent"

    @property
    def again_ms(self) -> int:
        """After so long."""
        return int(self.detail[0]) if self.detail else 0


class NotWaiting(StoreError):
    """The job does not wait for children, so that none can be added to it; nothing was changed."""

    code = "not_waiting"


class OldVersion(StoreError):
    """A configuration older than the one in force; nothing was changed."""

    code = "old_version"


class PolicyBusy(StoreError):
    """The jobs of a pool are still moving over to the policy that it was given last; another change has to wait."""

    code = "policy_busy"


# -- why a job did not succeed (the exception classes of a TaskError) --------------------------------------------


class JobCancelled(DuctorError):
    """The job was cancelled: before it ran, or while it ran."""

    code = "cancelled"


class JobExpired(DuctorError):
    """The job's `expires_after` passed before it ran."""

    code = "expired"


class JobDead(DuctorError):
    """The job spent its budget of attempts or crashes and lies among the dead letters."""

    code = "dead"


class ChildFailed(DuctorError):
    """A child of the job failed, and its `on_failure` made the job fail with it, or run again."""

    code = "child_failed"


class JobDiscarded(DuctorError):
    """The job was a dead letter and was discarded."""

    code = "discarded"


class JobReplaced(DuctorError):
    """A newer job of the same singleton took the place of this one before it ran."""

    code = "replaced"


class Concealed(DuctorError):
    """Stands for what a task with `sensitive=True` raised, in logs and monitors; names its class only."""

    code = "concealed"


class LeaseLost(DuctorError):
    """This run does not hold its job's lease any more: the job is run by somebody else, or is gone."""

    code = "lease_lost"


class WaitsForChildren(BaseException):
    """Ends the body of a run that has added children: the job waits for them, and runs again when they have ended.

    Raised by `context.add_children`. No error, and none of what `except Exception` catches; let it pass.
    """


class StaleWriter(DuctorError):
    """A newer run has written this row of the host's; nothing was written."""

    code = "stale_writer"


class UnfencedWrite(DuctorError):
    """A fenced row was about to be written without saying under which fence."""

    code = "unfenced_write"


class SoftTimeLimitExceeded(DuctorError):
    """This run has passed its soft time limit."""

    code = "soft_time_limit"


class TimeLimitExceeded(DuctorError):
    """A run had not ended within its time limit and was given up."""

    code = "time_limit"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"The run had not ended after {timeout_s:g} s and was given up.")


class WaitTimeout(DuctorError, TimeoutError):
    """The result did not come within the time given to `wait`."""

    code = "wait_timeout"


class NotSentYet(DuctorError, RuntimeError):
    """The job is sent when the transaction commits; nothing can be waited for inside it."""

    code = "not_sent_yet"


REFUSALS: dict[str, type[StoreError]] = {
    cls.code: cls
    for cls in (
        *(SchemaMismatch, StaleCall, Fenced, OrderChanged, LeaseHeld, LeaderAbsent, OldVersion, PolicyBusy),
        NotWaiting,
    )
}
