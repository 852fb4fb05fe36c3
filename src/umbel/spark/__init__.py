"""Everything that needs Spark. Nothing else imports pyspark."""
