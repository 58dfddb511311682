"""Edge: the metadata log of an Apache Kafka cluster in KRaft mode, read into the same tables."""
