"""Submit SQL statements to a Flink cluster: ``flink_submit.py SETTINGS_JSON``; prints the job's id.

Settings: ``java`` (a command line with class path), ``conf`` (Flink's configuration folder), ``statements``,
the last of which starts the job, and ``options`` of it, such as the savepoint that it starts from. Needs
py4j, which PySpark's environment has: Flink's own Python package would bring Beam for the same few calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

GATEWAY = "org.apache.flink.api.python.shaded.py4j.GatewayServer"


def main() -> None:
    """Start a JVM with Flink's client, let it submit, and end it."""
    settings = json.loads(sys.argv[1])
    server = subprocess.Popen(  # noqa: S603  (Flink's own program)
        [*settings["java"], GATEWAY, "--die-on-broken-pipe", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "FLINK_CONF_DIR": settings["conf"]},
    )
    assert server.stdin is not None and server.stdout is not None  # noqa: S101, PT018  (both are pipes)
    try:
        port = int(server.stdout.readline())
        flink = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm.org.apache.flink
        configuration = flink.configuration.GlobalConfiguration.loadConfiguration(settings["conf"])
        configuration.setString("execution.target", "remote")
        for name, value in settings["options"].items():
            configuration.setString(name, value)
        builder = flink.table.api.EnvironmentSettings.newInstance().inStreamingMode()
        table = flink.table.api.TableEnvironment.create(builder.withConfiguration(configuration).build())
        results = [table.executeSql(statement) for statement in settings["statements"]]
        print(results[-1].getJobClient().get().getJobID().toString())  # noqa: T201  (the answer)
    except Py4JJavaError as error:
        print(error, file=sys.stderr)  # noqa: T201  (while the JVM that knows what it says still runs)
        raise SystemExit(1) from None
    finally:
        server.stdin.close()
        server.wait(30)


if __name__ == "__main__":
    main()
