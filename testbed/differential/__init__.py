"""Scripts as people write them, run plainly and under the agent, and compared."""
