"""What SwiGlu and SwiGluGrad share: x in two halves, of which one gates the other."""
