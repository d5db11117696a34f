"""The report: one HTML page that needs nothing else."""

from bayestree.report.html.page import html_report

__all__ = ["html_report"]
