"""How ``spark-submit`` is run to hand a driver over to YARN."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.jobs.packing import pack_agent
from airflow_flinkstyle.jobs.target import PY_FILES, YARN_ATTEMPTS

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.spec import Submission
    from airflow_flinkstyle.jobs.target import SubmitTarget

TAGS: Final = "spark.yarn.tags"
_WAIT_FOR_END: Final = "spark.yarn.submit.waitAppCompletion"
_DRIVER_ENV: Final = "spark.yarn.appMasterEnv."


def command_line(target: SubmitTarget, submission: Submission, tag: str, folder: Path) -> list[str]:
    """Return how ``spark-submit`` is run; what is secret is in a file that only this user can read.

    Args:
        target: Where the driver goes.
        submission: Of the driver.
        tag: By which its application is found.
        folder: Of this user only, for as long as ``spark-submit`` runs.
    """
    settings = {
        **{f"{_DRIVER_ENV}{name}": value for name, value in submission.env.items()},
        YARN_ATTEMPTS: "1",
        _WAIT_FOR_END: "false",
        TAGS: ",".join(filter(None, (submission.program.conf.get(TAGS, ""), tag))),
    }
    file = folder / "driver.properties"
    file.touch(mode=0o600)
    file.write_text(_defaults(submission) + "".join(_property(*item) for item in settings.items()))
    program, *rest = submission.argv
    rest = _without_conf(_without_conf(rest, TAGS), _WAIT_FOR_END)
    command = [program, "--properties-file", str(file)]
    if target.proxy_user:
        command += ["--proxy-user", target.proxy_user]
    if target.agent == PY_FILES and target.agent_path is None:
        rest = _with_py_file(rest, str(pack_agent(folder).archive))
    return command + rest


def _defaults(submission: Submission) -> str:
    """Return the settings that spark-submit reads where it is given no file."""
    env = submission.submitter_env
    home = Path(submission.argv[0]).parent.parent
    place = Path(env.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    return f"{place.read_text()}\n" if place.is_file() else ""


def _property(name: str, value: str) -> str:
    """Return a line of Java's properties."""
    kept = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    spaces = len(kept) - len(kept.lstrip(" "))
    encoded = "".join(sign if sign.isascii() else f"\\u{ord(sign):04x}" for sign in kept[spaces:])
    return name + "=" + "\\ " * spaces + encoded + "\n"


def _without_conf(options: list[str], name: str) -> list[str]:
    """Leave a setting out of a command line: there it would win over the file."""
    found = next((at for at, option in enumerate(options) if option.startswith(f"{name}=")), None)
    return options if found is None else options[: found - 1] + options[found + 1 :]


def _with_py_file(options: list[str], file: str) -> list[str]:
    if "--py-files" in options[: options.index("--root")]:
        at = options.index("--py-files") + 1
        return [*options[:at], f"{file},{options[at]}", *options[at + 1 :]]
    return ["--py-files", file, *options]
