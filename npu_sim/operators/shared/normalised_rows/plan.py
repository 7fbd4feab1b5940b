"""Warnings of RmsNorm and AddRmsNorm."""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import Case, Caveat, caveat, to_fp32


def zero_epsilon_caveats(case: Case) -> Iterator[Caveat]:
    """Warn of an epsilon that is 0 in fp32."""
    if to_fp32(case.arguments.epsilon) == 0:
        yield caveat(
            "zero_rows_without_epsilon",
            "epsilon",
            "epsilon is 0 in fp32: a row of zeros has rstd inf and y nan",
        )
