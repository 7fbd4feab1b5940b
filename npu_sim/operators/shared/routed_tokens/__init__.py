"""What MoeTokenPermute, MoeTokenUnpermute and their gradients share: tokens routed to experts."""
