"""Where records are counted when one process is not enough: here, in processes, on Ray, on Spark."""
