"""Reports: pages about runs, comparisons and evaluations, a card about a data set."""

from rollwise.reports.card import write_data_card
from rollwise.reports.evaluation import write_evaluation_report
from rollwise.reports.report import LiveReport, write_report

__all__ = [
    "LiveReport",
    "write_data_card",
    "write_evaluation_report",
    "write_report",
]
