"""Exports of fitted trees as text, rules, DOT, JSON and ONNX, and the HTML report."""
