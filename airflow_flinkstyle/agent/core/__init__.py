"""The agent without a JVM: what it asks of Spark stands in ``spark``, and ``agent.jvm`` answers it."""
