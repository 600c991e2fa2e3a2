"""Where set-up has put things; found from the checkout.

The environment names three things: the version of Spark that ``make test-versions`` runs the tests on, and
the Python and the Java of their drivers, if those are not the tests' own (``make test-python-versions``,
``make test-java-versions``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".flinkstyle"
_OWN = Path(sys.prefix)
VENV_AIRFLOW = _OWN if _OWN.parent == HOME and _OWN.name.startswith("venv-airflow") else HOME / "venv-airflow"
"""Airflow's environment: the one this process runs in, of whichever version; else the default one."""
SPARK_VARIABLE = "FLINKSTYLE_TEST_SPARK"
SPARK = os.environ.get(SPARK_VARIABLE, "")
"""Minor version of the Spark that drivers of the tests run on; empty for the one of ``locks/spark.txt``."""

DRIVER_PYTHON = os.environ.get("FLINKSTYLE_TEST_PYTHON", "")
"""Interpreter of drivers that ``spark-submit`` starts; empty for that of Spark's environment."""
DRIVER_JAVA = os.environ.get("FLINKSTYLE_TEST_JAVA", "")
"""Java home of drivers; empty for the one that set-up has chosen, on which brokers run in any case."""


def venv_of_spark(minor: str) -> Path:
    """Return the environment of a Spark: the usual one without a version."""
    return HOME / (f"venv-spark-{minor}" if minor else "venv-spark")


VENV_SPARK = venv_of_spark(SPARK)
VENV_BENCH = HOME / "venv-bench"
"""What benchmarks compare with; only ``make bench`` makes it."""


def jar_set(name: str) -> tuple[Path, ...]:
    """Return the jars of a set of ``locks/jars.lock``, sorted.

    Raises:
        FileNotFoundError: If set-up has not fetched that set.
    """
    jars = tuple(sorted(HOME.glob(f"jars*/{name}/*.jar")))
    if not jars:
        raise FileNotFoundError(
            f"Jar set {name} was expected in {HOME / 'jars' / name}, found no jar. "
            "Nothing was started. Run `make setup`."
        )
    return jars


def class_path(*names: str) -> str:
    """Return the jars of one or more sets, joined for ``java -cp``."""
    return ":".join(str(jar) for name in names for jar in jar_set(name))


def java_home() -> Path:
    """Return the Java that set-up has chosen."""
    return Path((HOME / "java_home").read_text())


def driver_java_home() -> Path:
    """Return the Java that drivers run on."""
    return Path(DRIVER_JAVA) if DRIVER_JAVA else java_home()


def java() -> Path:
    """Return the java program."""
    return java_home() / "bin" / "java"


def program(name: str) -> Path:
    """Return a program that set-up has built.

    Raises:
        FileNotFoundError: If it has not.
    """
    path = HOME / "bin" / name
    if not path.exists():
        raise FileNotFoundError(
            f"{name} was expected at {path}, found nothing. Nothing was started. "
            f"Run `python3 -m tools.{name}`."
        )
    return path
