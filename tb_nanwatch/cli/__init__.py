"""The command line: post-mortems without TensorBoard. A command is one file in `commands`, a format one in `render`."""
