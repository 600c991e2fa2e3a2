"""What a connection names by ``module:attribute``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from airflow_flinkstyle.errors import BadInputError


def load(path: str) -> Any:  # noqa: ANN401 - any attribute
    """Return an attribute of a module, a switch of producers.

    Raises:
        BadInputError: If there is none.
    """
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInputError(
            f"A switch ('store', 'manual', 'module:attribute') was expected, found {path!r}: {error}.",
            state_after="No producer was held or released.",
            remedy="Name an importable attribute, with a colon between module and attribute.",
        ) from error
