"""The one list of Kafka's answers that are final: trying again cannot help, and why.

Every other code, also one of a later broker or client, counts as one that passes: the request is tried again,
with pauses, until the caller's limit.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

_RIGHTS = "a right is missing until it is granted"
_LOGIN = "the login is refused until it is corrected"
_SAME_RECORD = "the same record would be sent again, and refused again"
_NO_TOPIC = "the client has waited for the topic already (30 s); it must be created first"
_SETTING = "a setting of the client or the topic is wrong until it is changed"
_OLD = "the brokers, or the client, are too old for it until they are upgraded"
_DELETED = "the records at that offset are deleted, and do not come back"

FINAL: Final = MappingProxyType(
    {
        "_AUTHENTICATION": _LOGIN,
        "_SSL": _LOGIN,
        "SASL_AUTHENTICATION_FAILED": _LOGIN,
        "UNSUPPORTED_SASL_MECHANISM": _LOGIN,
        "ILLEGAL_SASL_STATE": _LOGIN,
        "SECURITY_DISABLED": _RIGHTS,
        "TOPIC_AUTHORIZATION_FAILED": _RIGHTS,
        "GROUP_AUTHORIZATION_FAILED": _RIGHTS,
        "CLUSTER_AUTHORIZATION_FAILED": _RIGHTS,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _RIGHTS,
        "MSG_SIZE_TOO_LARGE": _SAME_RECORD,
        "RECORD_LIST_TOO_LARGE": _SAME_RECORD,
        "INVALID_RECORD": _SAME_RECORD,
        "INVALID_TIMESTAMP": _SAME_RECORD,
        "_UNKNOWN_TOPIC": _NO_TOPIC,
        "_UNKNOWN_PARTITION": _NO_TOPIC,
        "UNKNOWN_TOPIC_OR_PART": _NO_TOPIC,
        "TOPIC_EXCEPTION": _SETTING,
        "INVALID_TRANSACTION_TIMEOUT": _SETTING,
        "INVALID_REQUIRED_ACKS": _SETTING,
        "INVALID_CONFIG": _SETTING,
        "INVALID_GROUP_ID": _SETTING,
        "INVALID_REQUEST": _SETTING,
        "POLICY_VIOLATION": _SETTING,
        "_INVALID_ARG": _SETTING,
        "_NOT_CONFIGURED": _SETTING,
        "UNSUPPORTED_VERSION": _OLD,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT": _OLD,
        "UNSUPPORTED_COMPRESSION_TYPE": _OLD,
        "_UNSUPPORTED_FEATURE": _OLD,
        "_NOT_IMPLEMENTED": _OLD,
        "OFFSET_OUT_OF_RANGE": _DELETED,
        "_AUTO_OFFSET_RESET": _DELETED,
    }
)
"""By librdkafka's name of the code: why trying again cannot help."""
