"""For unittest: a mixin that puts every test of a class under one of the modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from queueapp.testing.modes import immediate, recorded
from queueapp.testing.server import throwaway_store

if TYPE_CHECKING:
    from unittest import TestCase as Base
else:
    Base = object

MODES = {"recorded": recorded, "immediate": immediate, "store": throwaway_store}


class DuctorTestMixin(Base):
    """Stands before TestCase among the bases. `self.ductor` is a `Recorder`, or a `Ductor` for the mode "store"."""

    ductor_mode: ClassVar[str] = "recorded"
    """"recorded", "immediate" or "store"."""

    ductor: Any

    def setUp(self) -> None:
        if self.ductor_mode not in MODES:
            raise ValueError(f"ductor_mode is {self.ductor_mode!r}: it must be one of {', '.join(MODES)}.")
        mode: Any = MODES[self.ductor_mode]()
        self.ductor = mode.enable()
        self.addCleanup(mode.disable)
        super().setUp()
