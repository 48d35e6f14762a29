"""What people look at: a run's report as one HTML page."""

from rollwise.reports.report import write_report

__all__ = ["write_report"]
