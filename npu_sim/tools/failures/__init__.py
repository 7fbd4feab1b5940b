"""Reading of failures: error texts and logs of the product, as people paste them."""
