"""Kubeflow's Spark operator, built by Go from its module, with the resources that it brings."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from tools.common import Stamp, remove, say
from tools.go import Go

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "2.4.0"
_MODULE = f"github.com/kubeflow/spark-operator/v2@v{VERSION}"
_OLDEST_GO = (1, 24)


def build_operator(programs: Path, folder: Path) -> None:
    """Build the operator if it is not there yet.

    Args:
        programs: Gets ``spark-operator``.
        folder: Gets the definitions of its resources, as YAML, and ``values.txt``: its chart's settings.
    """
    stamp = Stamp("spark-operator", VERSION)
    if stamp.is_current and (programs / "spark-operator").exists():
        return
    started_s = time.monotonic()
    say(f"set-up: Spark operator {VERSION}, built with Go (4 minutes of one core, once) ...")
    remove(folder)
    go = Go(folder / "scratch", oldest=_OLDEST_GO, what=f"Spark operator {VERSION}")
    go.run("mod", "download", _MODULE)
    module = go.modules / _MODULE
    # In its own folder: its module says which versions of Kubernetes' modules replace others.
    options = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w")
    go.run("build", *options, "-o", programs / "spark-operator", "./cmd/operator", folder=module)
    for definition in sorted((module / "config" / "crd" / "bases").glob("*.yaml")):
        shutil.copy(definition, folder / definition.name)
    shutil.copy(module / "charts" / "spark-operator-chart" / "values.yaml", folder / "values.txt")
    remove(folder / "scratch")
    stamp.set()
    say(f"set-up: Spark operator done in {time.monotonic() - started_s:.0f} s")
