"""What every driver process would load anew: it is forked from one that has."""

from __future__ import annotations

import functools

from botocore import useragent
from botocore.loaders import JSONFileLoader

from airflow_flinkstyle.storage.s3 import make_client
from airflow_flinkstyle.storage.s3_settings import S3Settings
from tests.bad_minutes import driver

__all__ = ["driver"]


def keep_models() -> None:
    """Have boto3 read its description of S3 once a process, and not make its own name at each request."""
    load = JSONFileLoader.load_file
    loaded = functools.cache(lambda path: load(JSONFileLoader(), path))
    JSONFileLoader.load_file = lambda _self, path: loaded(path)
    useragent.sanitize_user_agent_string_component = functools.cache(
        useragent.sanitize_user_agent_string_component
    )
    make_client(S3Settings(access_key="none", secret_key="none"), "http://127.0.0.1:9")  # noqa: S106


keep_models()
