"""The report: one HTML page without external resources."""

from bayestree.report.html.page import html_report

__all__ = ["html_report"]
