"""What RmsNorm and RmsNormGrad share: rows that are normalised by their root mean square."""
