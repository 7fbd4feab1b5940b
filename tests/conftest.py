"""What holds for every test: messages are those of the code, whatever the locale of the machine."""

import os

os.environ["NPU_SIM_LANG"] = "en"
