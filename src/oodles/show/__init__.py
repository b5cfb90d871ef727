"""Results for readers: figures, tables, terminal and report. No statistic is computed here."""
