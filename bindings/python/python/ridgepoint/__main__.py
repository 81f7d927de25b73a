"""The command ``ridgepoint``, also as ``python -m ridgepoint``."""

import signal
import sys

from . import _native


def main() -> int:
    """Runs the command with the arguments of the process and returns its exit code."""
    # Python's own handler would wait for the native call to return.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native._run_command(["ridgepoint", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
