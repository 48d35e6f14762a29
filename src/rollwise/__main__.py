"""`python -m rollwise` is the `rollwise` command."""

import sys

from rollwise.cli import main

if __name__ == "__main__":
    sys.exit(main())
