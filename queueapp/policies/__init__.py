"""Who runs next: the policies as pure functions, and the walk tenants → lanes → jobs that they steer.

Imports neither Redis nor Django nor anything else of Ductor. The store's Lua does the same arithmetic in the same
order; `tests/model/test_parity.py` holds the two to the same leases, job by job.
"""
