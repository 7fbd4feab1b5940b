"""What holds for every test: messages are those of the code, whatever the locale of the machine, and no property is a question of time."""

import os

from hypothesis import settings

os.environ["NPU_SIM_LANG"] = "en"
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
