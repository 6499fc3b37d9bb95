"""`python -m tb_nanwatch` is the command `nanwatch`."""

import sys

from tb_nanwatch.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
