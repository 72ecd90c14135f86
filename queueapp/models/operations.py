"""No tables: the permissions to look and to act, and the admin's pages of what is in the store."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from queueapp.models.base import M
from queueapp.permissions import (
    DISCARD_JOB,
    OPERATE_JOB,
    OPERATE_POOL,
    VIEW_ALL_TENANTS,
    VIEW_OPERATIONS,
    VIEW_PAYLOAD,
)


class NoRows(models.Manager[M]):
    """Of models without a table: whoever reads all models, such as `dumpdata`, finds nothing and no error."""

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().none()


class Operations(models.Model):
    """No table: the permissions to look at what runs and to act on it, and the admin's page of the pools."""

    objects = NoRows["Operations"]()

    class Meta:
        base_manager_name = "objects"
        managed = False
        default_permissions = ()
        verbose_name = _("operations")
        verbose_name_plural = _("operations")
        permissions = (
            (VIEW_OPERATIONS, _("Can see what runs: pools, tenants, jobs without their contents")),
            (VIEW_PAYLOAD, _("Can see arguments, results and tracebacks")),
            (OPERATE_POOL, _("Can pause, resume, drain and obliterate pools, and pause tenants and lanes")),
            (OPERATE_JOB, _("Can cancel, retry, edit and move jobs")),
            (DISCARD_JOB, _("Can discard dead letters")),
            (VIEW_ALL_TENANTS, _("Can use the REST API for every tenant")),
        )

    def __str__(self) -> str:
        return str(self._meta.verbose_name)


class Jobs(Operations):
    """The admin's pages of jobs, which are read from the store."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("job")
        verbose_name_plural = _("jobs")


class DeadLetters(Operations):
    """The admin's pages of dead letters, which are read from the store."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
