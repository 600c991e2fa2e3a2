"""From one Kafka cluster to another: the pre-flight, the journalled window, the rollback.

Decides the order of things only: positions are proved in ``kafka/translation``, drivers start in
``running``.
"""
