"""The HTTP service: a trigger for schedulers, health, metrics."""
