"""What users send: traces read into one record, cohorts sampled, agents' turns."""
