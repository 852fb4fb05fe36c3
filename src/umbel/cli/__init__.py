"""The command line: each module with a function `command` is a subcommand."""
