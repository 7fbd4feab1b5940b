"""Common parts of RmsNorm and RmsNormGrad: rows that are normalised by their root mean square."""
