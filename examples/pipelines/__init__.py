"""Five Spark pipelines on real flights, to run and to take over.

They need extras: `pip install '.[all,demo]'`. Fill the topics first, then run any of them, and run
it again to see that it goes on:

    kbroker dev &
    python -m examples.pipelines.load --bootstrap-server localhost:9092
    python -m examples.pipelines.flight_delays --bootstrap-server localhost:9092 \\
        --checkpoint /tmp/flight-delays

| pipeline | shows |
|---|---|
| `flight_delays` | windows with a watermark, a topic between two queries, and a group's lag |
| `airborne` | the join of two streams |
| `flights_table` | `foreachBatch`: a batch that is run again replaces itself in a table of files |
| `backfill` | a batch query over the past that meets a live query at one offset |
| `decode` | JSON and Avro, decoded by columns |
"""

from examples.packages import require

# Here, for each pipeline imports them first of all.
require("pyspark", "pyarrow")
