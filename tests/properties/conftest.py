"""How the properties are searched."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No deadline: a busy machine is no bug. Histories are made of many draws, which hypothesis finds large.
settings.register_profile(
    "alpineagents",
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
settings.load_profile("alpineagents")
