"""Move a savepoint to other offsets: plan (pure), preconditions, application to a copy."""
