"""Nodes of a Spark cluster: Spark's own programs, on the Java that umbel uses."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pyspark

from umbel.spark.java import java_home
from umbel.spark.session import environment

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


def run(main_class: str, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> NoReturn:
    """Replace this process by a Java program of Spark's."""
    spark, java = Path(pyspark.__file__).parent, java_home()
    library = next(spark.glob("jars/scala-library-*.jar")).stem.removeprefix("scala-library-")
    scala = ".".join(library.split(".")[:2])  # Spark's launcher asks for it
    own = environment() | {"SPARK_HOME": str(spark), "SPARK_SCALA_VERSION": scala, **(variables or {})}
    own.pop("SPARK_LOCAL_IP")
    command = [str(java / "bin" / "java"), "-Xmx512m", "-cp", f"{spark}/jars/*", main_class, *arguments]
    os.execve(command[0], command, {**os.environ, **own})  # noqa: S606  no shell is meant
