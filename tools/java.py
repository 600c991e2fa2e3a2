"""Find a Java that Spark and Kafka run on, or fetch one into the checkout's folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tools.common import HOME, JAVA_HOME_FILE, LOGS, fail, fail_full, is_full, say

if TYPE_CHECKING:
    from collections.abc import Mapping

PLACES = Path("/usr/lib/jvm")
OLDEST, NEWEST = 17, 21
"""Feature versions Spark 4.2 and Kafka 4.3 support; newer ones drop what Hadoop still uses."""


def ensure(python_with_cjdk: Path) -> Path:
    """Return a suitable Java home and record it for the test bed."""
    # Its version may be another one by now: a system's Java is replaced where it stands.
    if JAVA_HOME_FILE.exists() and _fits(version_of(Path(JAVA_HOME_FILE.read_text()))):
        return Path(JAVA_HOME_FILE.read_text())
    found = installed()
    home = next((home for home, version in found.items() if _fits(version)), None)
    home = home or fetch(python_with_cjdk, found)
    JAVA_HOME_FILE.write_text(str(home))
    return home


def installed() -> dict[Path, int]:
    """Return the Javas of JAVA_HOME, PATH and Debian's place that run, with their feature versions."""
    candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve().parent.parent)
    candidates += sorted(PLACES.glob("*"))
    return {home: version for home in candidates if (version := version_of(home)) is not None}


def _fits(version: int | None) -> bool:
    return version is not None and OLDEST <= version <= NEWEST


def version_of(home: Path) -> int | None:
    """Return the feature version of the Java in ``home``, or None if there is none that runs."""
    java = home / "bin" / "java"
    if not java.exists():
        return None
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer)  # Java 8 calls itself 1.8
    return int(found[1]) if found else None


def fetch(python_with_cjdk: Path, found: Mapping[Path, int]) -> Path:
    """Fetch a JDK with cjdk; where that is impossible, say what was found and what to install."""
    say(f"set-up: no Java {OLDEST} to {NEWEST} found, fetching a JDK ...")
    LOGS.mkdir(parents=True, exist_ok=True)
    cjdk = [python_with_cjdk, "-m", "cjdk", "--jdk", f"temurin:{OLDEST}", "--cache-dir", HOME / "jdk"]
    command = [*cjdk, "java-home"]
    with (LOGS / "setup-java.log").open("w") as log:
        done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603
    home = Path(done.stdout.strip() or "/nonexistent")
    if done.returncode == 0 and version_of(home):
        return home
    if is_full((LOGS / "setup-java.log").read_text(errors="replace")):
        fail_full(str(HOME))
    others = " and ".join(f"Java {version} in {home}" for home, version in found.items())
    fail(
        f"Java {OLDEST} to {NEWEST} was expected, found {others or 'none'}; no JDK could be downloaded.",
        "The Python environments are kept.",
        "Install Java 17 or 21, e.g. `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME to one; "
        "then run it again.",
    )
