"""From vectors to a rotation: moments, pairs, angles."""
