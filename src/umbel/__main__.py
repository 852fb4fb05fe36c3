"""`python -m umbel`, and the command `umbel`: the command line."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command line; Ctrl-C ends it while its modules are loaded, too."""
    try:
        from umbel.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    if (
        not sys.flags.safe_path
    ):  # the current folder is first: a queue.py in it would be taken for the standard library's
        del sys.path[0]
    run()
