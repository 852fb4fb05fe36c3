"""mongo-java-server: MongoDB's protocol in memory, with all types of BSON, in a process of its own."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.jars import fetched, java
from tests.scenarios.server import HOST, free_port


class JavaServer:
    """A server in memory: what is killed is empty afterwards."""

    unknown = frozenset({"javascript"})

    def __init__(self) -> None:
        self.port, self._process = free_port(), None

    def start(self) -> None:
        """Start it."""
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

        spark = find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        bridge = next((Path(spark.origin).parent / "jars").glob("py4j-*.jar"))
        jars = os.pathsep.join(map(str, fetched(Path(__file__).with_name("mongo_java.xml")).glob("*.jar")))
        options = {"javaopts": ["-Xmx512m", "-XX:+UseSerialGC"], "java_path": java(), "die_on_exit": True}
        port, self._process = launch_gateway(
            jarpath=str(bridge), classpath=jars, return_proc=True, redirect_stderr=subprocess.DEVNULL, **options
        )
        server: Any = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm.de.bwaldvogel.mongo
        server.MongoServer(server.backend.memory.MemoryBackend()).bind(HOST, self.port)

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
