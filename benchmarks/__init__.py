"""Time, memory and quality. A package, because PyArrow 17 installs one of this name."""
