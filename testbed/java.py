"""Java's exceptions as py4j shows them, without a JVM: class, classes above it, text, cause."""

from __future__ import annotations

from typing import Any


class _Class:
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def getName(self) -> str:
        return self._names[0]

    def getSimpleName(self) -> str:
        return self._names[0].rpartition(".")[2]

    def getSuperclass(self) -> _Class | None:
        return _Class(self._names[1:]) if len(self._names) > 1 else None


class Thrown:
    """An exception of Java: its class first, then those above it."""

    _target_id = "o0"
    _gateway_client: Any = None

    def __init__(self, *names: str, cause: Thrown | None = None) -> None:
        self._names, self._cause = names, cause

    def getClass(self) -> _Class:
        """Return its class."""
        return _Class((*self._names, "java.lang.Exception", "java.lang.Throwable"))

    def getMessage(self) -> str:
        """Return its text."""
        return f"it was told to fail of {self._names[0]}"

    def getCause(self) -> Thrown | None:
        """Return what is behind it."""
        return self._cause
