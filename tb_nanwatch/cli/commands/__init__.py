"""One command a file, named as the file.

A command has HELP and EXAMPLES (text), `add_arguments(parser)` and `run(args)`, which returns the exit code; its
docstring is its description.
"""
