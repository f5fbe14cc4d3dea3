"""``python -m collapse``."""

from collapse.cli import main

if __name__ == "__main__":
    main()
