"""Waiting in the triggerer: for a savepoint, for progress, for a fresh savepoint."""
