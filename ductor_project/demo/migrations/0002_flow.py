# ruff: noqa: RUF012
# What an upload has that a flow imports.

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("demo", "0001_initial")]

    operations = [
        migrations.AddField(model_name="upload", name="text", field=models.TextField(blank=True)),
        migrations.AddField(model_name="upload", name="run", field=models.CharField(blank=True, max_length=22)),
    ]
