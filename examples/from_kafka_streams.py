"""Move a count per word from Kafka Streams to Spark, without reading the words again.

``python examples/from_kafka_streams.py SERVERS APPLICATION_ID STORE INPUT_TOPIC ROOT SCRIPT``, once the
application has been closed: its store's changelog and its group's offsets then agree.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.start.text import parse_rules
from airflow_flinkstyle.rewrite.apply import picked_position
from airflow_flinkstyle.state import bootstrap_savepoint


def store(spark: SparkSession, servers: str, changelog: str) -> DataFrame:
    """Return a store of Kafka Streams: words as text, counts as 8 bytes, a null where a word was removed."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": changelog}
    records = spark.read.format("kafka").options(**options).load()
    newest = records.groupBy("key").agg(F.max_by("value", "offset").alias("value")).where("value IS NOT NULL")
    count = F.conv(F.hex("value"), 16, 10).cast("long").alias("count")
    return newest.select(F.col("key").cast("string").alias("word"), count)


def main(servers: str, application: str, name: str, topic: str, root: str, script: str) -> None:
    """Give the job ``words`` its first savepoint."""
    spark = SparkSession.builder.appName("from Kafka Streams").getOrCreate()
    table = store(spark, servers, f"{application}-{name}-changelog")
    cluster = KafkaCluster(name="kafka", config={"bootstrap.servers": servers})
    position = picked_position(cluster, [topic], parse_rules(f"group:{application}"))
    done = bootstrap_savepoint(
        spark, root, "words", script, {0: table}, {"0": position}, [servers, topic, "unused"]
    )
    print(done.savepoint.savepoint_id, done.counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
