"""Statistics of trajectories: from the long table to correlations, intervals, caveats and a verdict."""
