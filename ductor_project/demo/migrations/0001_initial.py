# ruff: noqa: RUF012
# The tables of the demonstration.

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Upload",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tenant", models.CharField(db_index=True, max_length=64)),
                ("name", models.CharField(max_length=200)),
                ("pool", models.CharField(default="default", max_length=64)),
                ("row_count", models.PositiveIntegerField()),
                ("uploaded_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ("-pk",),
            },
        ),
        migrations.CreateModel(
            name="ImportChunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("text", models.TextField()),
                (
                    "upload",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="chunks", to="demo.upload"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ImportedRow",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tenant", models.CharField(max_length=64)),
                ("line", models.PositiveIntegerField()),
                ("customer", models.CharField(max_length=200)),
                ("email", models.CharField(max_length=200)),
                ("iban", models.CharField(max_length=34)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=12, null=True)),
                ("booked", models.DateField(null=True)),
                ("fault", models.CharField(blank=True, max_length=200)),
                (
                    "chunk",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rows",
                        to="demo.importchunk",
                    ),
                ),
                (
                    "upload",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="rows", to="demo.upload"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("chunk", "line"), name="demo_row_once")],
            },
        ),
        migrations.AddConstraint(
            model_name="importchunk",
            constraint=models.UniqueConstraint(fields=("upload", "number"), name="demo_chunk_number"),
        ),
    ]
