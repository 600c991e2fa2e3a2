"""The signing key of everything that the tests, the demo and the benchmarks start; it guards nothing."""

from __future__ import annotations

from airflow_flinkstyle.jobs.signing import KEY_VARIABLE, Signer

SIGNING_KEY = "of-the-testbed-and-guards-nothing-1"
SIGNER = Signer((SIGNING_KEY,))
SIGNING_ENV = {KEY_VARIABLE: SIGNING_KEY}
