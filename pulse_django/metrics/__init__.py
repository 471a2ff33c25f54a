"""What is measured and shown: minutes of the fleet, and what is written of them."""
