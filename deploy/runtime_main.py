"""The zip's entry point, as main.py beside the packages: AgentCore calls port 8080, from outside the process's host."""

import sys

from agent.__main__ import main

if __name__ == "__main__":
    sys.argv[1:] = ["--host", "0.0.0.0", "--port", "8080"]
    main()
