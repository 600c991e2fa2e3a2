"""What the script says of a query in tests that do not care for it: always the same."""

from __future__ import annotations

from airflow_flinkstyle.agent.core.declared import Declaration, DeclaredPlace

AS_BEFORE = Declaration(
    location="/own", sink=DeclaredPlace.of("noop", {}), sources=DeclaredPlace.of("rate", {})
)
