"""Benchmarks: each compares contenders in one run and prints ratios; ``make bench`` runs them."""
