"""Run a node of a Spark cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

group = typer.Typer(help="Run a node of a Spark cluster for `umbel work --master`.", no_args_is_help=True)
Host = Annotated[str, typer.Option("--host", help="The address of this machine by which the others reach it.")]
WebPort = Annotated[int, typer.Option("--web-port", min=0, max=65535, help="Of the node's web page; 0 for a free one.")]


@group.command()
def master(
    host: Host,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where workers and drivers register.")] = 7077,
    web_port: WebPort = 8080,
) -> None:
    """Run the master, which hands out the cores of the workers.

    Example:
        umbel spark master --host spark.example.com
    """
    from umbel.spark.nodes import MASTER, run

    run(MASTER, ["--host", host, "--port", str(port), "--webui-port", str(web_port)])


@group.command()
def worker(
    master: Annotated[str, typer.Argument(metavar="MASTER", help="URL of the master: spark://spark.example.com:7077")],
    host: Host,
    cores: Annotated[int | None, typer.Option("--cores", min=1, show_default="all of this machine")] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="For executors: 4g", show_default="all but 1g")] = None,
    scratch: Annotated[
        Path | None,
        typer.Option("--scratch", help="Folder for logs and temporary files.", show_default="a temporary one"),
    ] = None,
    web_port: WebPort = 8081,
) -> None:
    """Run a worker, which offers this machine's cores to the cluster.

    It needs umbel installed at the path that it has on the driver's machine, and the driver's --dir at the same path.

    Example:
        umbel spark worker spark://spark.example.com:7077 --host one.example.com --cores 8
    """
    import tempfile

    from umbel.spark.nodes import WORKER, run

    folder = scratch or Path(tempfile.mkdtemp(prefix="umbel-spark-"))
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--host", host, "--webui-port", str(web_port), "--work-dir", str(folder)]
    options += ["--cores", str(cores)] if cores else []
    options += ["--memory", memory] if memory else []
    run(WORKER, [*options, master], {"SPARK_LOCAL_DIRS": str(folder)})
