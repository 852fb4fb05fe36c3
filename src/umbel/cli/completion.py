"""Print a script that completes umbel's commands and options in a shell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """A shell with support for completion."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def command(shell: Annotated[Shell, typer.Argument(help="The shell that is to complete.", show_default=False)]) -> None:
    """Print a script that completes commands and options in a shell.

    Nothing is installed.

    Examples:
        source <(umbel completion bash)                                # in ~/.bashrc

        source <(umbel completion zsh)                                 # in ~/.zshrc, after compinit

        umbel completion fish > ~/.config/fish/completions/umbel.fish
    """
    from typer._completion_shared import get_completion_script

    from umbel.cli.main import COMPLETING, PROGRAM

    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETING, shell=shell.value))
