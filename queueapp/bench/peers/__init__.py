"""Other queues, measured beside Ductor (`bench throughput --peers`): who they are, where they are installed, how fast.

Each has a driver of its own in `drivers`, which sets it up as its documentation recommends for throughput and runs in
an environment of its own under `.bench`. None of them is a dependency of ours.
"""
