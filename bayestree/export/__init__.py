"""The deterministic tree for other programs: as text, rules, DOT, JSON and ONNX."""
