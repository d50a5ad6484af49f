"""Servers on loopback that the tests talk to."""
