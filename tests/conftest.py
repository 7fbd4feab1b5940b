"""Settings of all tests: English messages whatever the locale, and no deadline for properties."""

import os

from hypothesis import settings

os.environ["NPU_SIM_LANG"] = "en"
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
