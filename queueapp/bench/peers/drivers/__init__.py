"""One program for each queue. They are run by their paths, in environments where Ductor is not installed."""
