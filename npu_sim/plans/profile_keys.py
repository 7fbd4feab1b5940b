"""What a plan says of keys of a profile that change nothing."""

from npu_sim.plans.answers import Frozen


class ProfileKey(Frozen):
    """A key of a profile of one's own that changes nothing in the tiling of a call.

    Attributes
    ----------
    key, value
        The key, and its value in the profile.
    shipped, product
        Its value in the product that ships with the SoC, and that product.
    assumed, source
        What the operator's planner counts with instead, and where that is stated; None and empty where it only does not ask.
    if_asked
        What the planner would do if it asked the chip, in words; a model. Empty where nobody knows.
    """

    key: str
    value: int
    shipped: int
    product: str
    assumed: int | None = None
    source: str = ""
    if_asked: str = ""
