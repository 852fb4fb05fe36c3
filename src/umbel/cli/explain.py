"""Show the plan of a module."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.options import Env, Module


def command(
    module: Module,
    env: Env = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False,
) -> None:
    """Show the plan of MODULE: operators by stage, with inputs, parameters and columns.

    Nothing is committed and no server needs to run.

    Examples:
        umbel explain examples.flights.features

        umbel explain my_features:app --mermaid > plan.mmd
    """
    from umbel.cli.loading import definitions
    from umbel.graph import explain
    from umbel.graph.graph import Graph

    graph = Graph(definitions(module, env).datasets.values())
    typer.echo(explain.mermaid(graph) if mermaid else explain.explain(graph), nl=False)
