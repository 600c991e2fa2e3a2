"""What every driver process would load anew: it is forked from one that has."""

from __future__ import annotations

import functools

from botocore.loaders import JSONFileLoader

from airflow_flinkstyle.storage.s3_client import make_client
from airflow_flinkstyle.storage.s3_settings import S3Settings
from tests.bad_minutes import driver

__all__ = ["driver"]


def keep_models() -> None:
    """Parse boto3's description of S3 once a process, not once a client: it is most of what a driver costs."""
    load = JSONFileLoader.load_file
    loaded = functools.cache(lambda path: load(JSONFileLoader(), path))
    JSONFileLoader.load_file = lambda _self, path: loaded(path)
    make_client(S3Settings(access_key="none", secret_key="none"), "http://127.0.0.1:9")  # noqa: S106


keep_models()
