"""Providers that the tests bring along: real servers on 127.0.0.1."""
