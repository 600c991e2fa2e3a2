"""Set-up and test running for this checkout; only the standard library, nothing to install first."""
