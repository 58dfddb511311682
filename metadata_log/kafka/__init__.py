"""Pure: the metadata log of Apache Kafka: its records and its record batches."""
