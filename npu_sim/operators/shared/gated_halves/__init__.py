"""Common parts of SwiGlu and SwiGluGrad: x in two halves, of which one gates the other."""
