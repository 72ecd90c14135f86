"""The errors of flows, in Ductor's tree: each names the flow, the step, the value and the remedy."""

from __future__ import annotations

from queueapp.errors import DuctorError, InvalidOption


class FlowInvalid(InvalidOption):
    """A definition cannot be run: found when its module is imported."""

    code = "flow_invalid"


class InvalidInput(InvalidOption):
    """A run was given arguments that its flow does not take."""

    code = "flow_input"


class InvalidValue(DuctorError, ValueError):
    """A value of a run is not what a step takes of it: another type, or without the part that is asked for."""

    code = "flow_value"


class UnknownFlow(DuctorError, LookupError):
    """No flow of this name is declared here, or no version of it is stored."""

    code = "unknown_flow"


class UnknownRun(DuctorError, LookupError):
    """There is no run of this id."""

    code = "unknown_run"


class RunFailed(DuctorError):
    """A run whose result was asked for did not complete."""

    code = "run_failed"


class RunBusy(DuctorError):
    """Others changed the run each time; nothing was changed by this call."""

    code = "run_busy"


class OtherVersion(DuctorError):
    """A run was to be advanced by another definition than the one it began with."""

    code = "flow_version"


class RunRefused(DuctorError):
    """A run, or one of its steps, is not in a state in which this can be done; nothing was changed."""

    code = "flow_refused"
