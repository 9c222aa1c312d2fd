"""Which backend the suites run on; the gateway itself is named by the environment of the client."""

import os

BACKEND = os.environ.get("ISOGATE_TEST_BACKEND", "")
CAPABILITIES = os.environ.get("ISOGATE_TEST_CAPABILITIES", "").split()
