"""What any backend of django.tasks has to do, tried on Ductor's with a real store and a real worker.

The behaviours are those that the suites of Django, django-tasks and of other backends look at; the tests are our own.
They run in every cell of the matrix: on Django 5.2 with the package django-tasks, on 6.0 and on 6.1. What is Ductor's
alone is tested in `tests/unit`.
"""
