"""``make demo``: migrate a stateful job between two real Kafka clusters, and judge it order by order."""
