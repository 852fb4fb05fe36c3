"""The collector: an HTTP endpoint that stores events durably, without catalog or Spark."""
