"""Entry point of ``python -m collapse`` and of the command ``collapse``."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C exits with 130, even while modules are still being imported."""
    try:
        from collapse.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
