"""Start TensorBoard on a folder and print the address of the tab: `python demo/serve.py [LOGS] [--port N]`."""

from __future__ import annotations

import argparse
import contextlib
import signal

from tensorboard import program


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="?", default="logs", help="folder of the runs (default %(default)s)")
    parser.add_argument("--port", default="6006", help="0 for any free port (default %(default)s)")
    options = parser.parse_args()
    board = program.TensorBoard()
    board.configure(argv=["tensorboard", "--logdir", options.logs, "--port", options.port])
    try:
        address = board.launch()
    except program.TensorBoardServerException as error:
        parser.exit(1, f"TensorBoard did not start: {error}\nChoose another port: make demo PORT=0\n")
    print(f"The tab: {address}#nanwatch   (Ctrl+C ends it)", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


if __name__ == "__main__":
    main()
