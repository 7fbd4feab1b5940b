"""Print the lowest declared version of every dependency, as constraints for pip."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads(
    (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
)["project"]
for one in sorted({*project["dependencies"], *project["optional-dependencies"]["dev"]}):
    match = re.fullmatch(r"([\w-]+)>=([\d.]+)", one)
    if match:
        print(f"{match[1]}=={match[2]}")
