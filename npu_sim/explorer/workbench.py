"""What answers are made from: the products that can be chosen, what is being computed, and the files that were dropped on the page."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from npu_sim.cores import Profile
from npu_sim.explorer.dropped import DroppedFiles
from npu_sim.explorer.jobs import Jobs


@dataclass
class Workbench:
    """The state of one explorer.

    Attributes
    ----------
    products
        By the names that the page shows; replaced as a whole when one is added.
    token
        What a page must know to start anything.
    """

    products: Mapping[str, Profile]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), kw_only=True)
    jobs: Jobs = field(default_factory=Jobs, kw_only=True)
    dropped: DroppedFiles = field(default_factory=DroppedFiles, kw_only=True)

    def clear(self) -> None:
        """End what is being computed and remove the files."""
        self.jobs.end()
        self.dropped.forget()
