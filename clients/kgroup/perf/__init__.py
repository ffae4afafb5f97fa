"""`kgroup perf`: measure a cluster as Kafka's performance tools do."""
