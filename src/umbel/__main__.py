"""`python -m umbel`: the command line."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if (
        not sys.flags.safe_path
    ):  # the current folder is first: a queue.py in it would be taken for the standard library's
        del sys.path[0]
    from umbel.cli.main import main

    main()
