"""Scripts as people write them, run plainly and under the agent, and compared.

Drawn are one to five queries with every trigger; over files, Kafka, Delta and rate; with stateful
operators on each state store; into JSON, Parquet, Kafka, Delta, memory, the transactional sink, and
functions that append, update by key or remember numbers. A seed gives the same script and plan; timing
differs.

Rows must be the same equally often (in ``update`` the last row of each key); after a kill or a rewind,
where the sink has no log, each at least once; after a ``fork`` or a ``re-emit`` those after the savepoint
once more. States must be equal by Spark's own reader, where both runs end at the same watermark. A script
that fails under plain Spark must fail alike. A refusal needs a code about the script or the plan, and
right output so far.

Not covered: memory sinks in ``append`` or ``update`` mode; functions that remember numbers together with
``re-emit``; a rewind of a rate source.
"""
