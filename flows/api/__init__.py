"""The REST API of flows: start runs, look at them, act on them and send them events.

Include `flows.api.urls` beside `queueapp.api.urls`, under the same prefix or another. Only flows that are declared with
`@flow(api=True)` are there; for whom a request may speak is what `DUCTOR["API_TENANTS"]` says.
"""
