"""What every room uses: types, numbers, arrays, and long calls in parts."""
