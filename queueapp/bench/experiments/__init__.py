"""One module per experiment: `run(...)` measures and returns its figures."""
