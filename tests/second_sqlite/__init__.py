"""The engine of a database that one test adds by itself, beside those that Django's test cases know and guard."""
