"""How the tiling model cuts an output over the cores of the cube unit.

Evidence: model. Source: the page, "Tiling model", cores. Pure integer functions, see ``conv_tbc_problem``.
"""

from typing import NamedTuple

from npu_sim.tiling.integers import ceil_div


class OutputSplit(NamedTuple):
    """Blocks along M and along N."""

    m_blocks: int
    n_blocks: int


def next_split(tiles: int, blocks: int) -> int:
    """Next larger number of even blocks that ``tiles`` can be cut into; 0 when there is none."""
    tiles_per_block = ceil_div(tiles, blocks)
    return ceil_div(tiles, tiles_per_block - 1) if tiles_per_block > 1 else 0


def split_output(m_tiles: int, n_tiles: int, samples: int, cores: int) -> OutputSplit:
    """Cut M and N, counted in base blocks, so that the last round of blocks leaves the fewest cores idle.

    Maximises blocks / (ceil(blocks, cores) * cores), with ``samples`` separate outputs of M x N. Ties go to fewer
    blocks, then to the larger single-core block, then to the longer M. Blocks are cut evenly: a larger single
    size with as many blocks would only make the last one shorter.
    """
    best = OutputSplit(1, 1)
    best_blocks = samples
    best_rounds = ceil_div(samples, cores)
    best_area = m_tiles * n_tiles
    m_blocks = 1
    while m_blocks > 0:
        n_blocks = 1
        while n_blocks > 0:
            blocks = samples * m_blocks * n_blocks
            if blocks > best_blocks and best_blocks == best_rounds * cores:
                break  # no core is idle already, and more blocks are smaller blocks
            rounds = ceil_div(blocks, cores)
            area = ceil_div(m_tiles, m_blocks) * ceil_div(n_tiles, n_blocks)
            # Idle shares are idle / (rounds * cores): compared crosswise, exact in integers.
            gain = (best_rounds * cores - best_blocks) * rounds - (
                rounds * cores - blocks
            ) * best_rounds
            smaller = blocks < best_blocks or (blocks == best_blocks and area > best_area)
            if gain > 0 or (gain == 0 and smaller):
                best = OutputSplit(m_blocks, n_blocks)
                best_blocks, best_rounds, best_area = blocks, rounds, area
            n_blocks = next_split(n_tiles, n_blocks)
        m_blocks = next_split(m_tiles, m_blocks)
        if samples * m_blocks > best_blocks and best_blocks == best_rounds * cores:
            break
    return best
