"""An ASGI application that is imported with its first request: most components of Airflow get none."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any


class LazyApp:
    """Is mounted by Airflow in place of an application."""

    def __init__(self, module: str, factory: str) -> None:
        """Args: ``module`` and ``factory``: what makes the application."""
        self._module, self._factory = module, factory
        self._made: Any = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{self._module}:{self._factory}"  # Airflow lists it among its plugins

    def app(self) -> Any:  # noqa: ANN401 - FastAPI's class is not imported for its name
        """Return the application, made once."""
        with self._lock:
            if self._made is None:
                self._made = getattr(import_module(self._module), self._factory)()
            return self._made

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI has no types
        """Answer a request."""
        await self.app()(scope, receive, send)
