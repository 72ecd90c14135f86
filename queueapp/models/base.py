"""What our models share: they live in the database that `DUCTOR["DATABASE"]` names."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from queueapp.conf import settings

M = TypeVar("M", bound=models.Model)


class OurManager(models.Manager[M]):
    """Reads and writes in the database of `DUCTOR["DATABASE"]`, unless `using` says otherwise."""

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().using(self._db or settings.database)


class OurModel(models.Model):
    """Binds a new instance to the database of `DUCTOR["DATABASE"]`, so that validation and save go there."""

    created = models.DateTimeField(_("created"), auto_now_add=True)
    updated = models.DateTimeField(_("updated"), auto_now=True)

    class Meta:
        abstract = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state.db = settings.database
