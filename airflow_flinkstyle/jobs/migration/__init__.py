"""From one Kafka cluster to another: the look beforehand, the journalled window, the rollback.

Decides the order of things only: positions are proved in ``kafka/translation``, drivers start in
``running``.
"""
