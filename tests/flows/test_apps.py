"""What the app of flows puts into the queue."""

from __future__ import annotations

from django.apps import apps

from flows.dispatch import WRAPPER
from flows.steps import StepWrapper
from flows.sweep import Sweep
from queueapp import extensions


def test_it_is_there_once_however_often_the_app_is_made_ready() -> None:
    """As whoever overrides INSTALLED_APPS in a test does."""
    before = dict(extensions.duties), dict(extensions.verbs)
    apps.get_app_config("ductor_flows").ready()
    assert (dict(extensions.duties), dict(extensions.verbs)) == before
    assert extensions.duties["flows"] is Sweep
    assert isinstance(extensions.wrapper_of(WRAPPER), StepWrapper)
