# %% [markdown]
# # A cluster's history, asked
#
# `metaquorum log export --to export` writes the log as Parquet. This notebook asks it. `METAQUORUM_LOG` names another log:
# an export, a data directory, or a controller's URL. Every table and column is described in [analytics.md](analytics.md).
#
# The log shown here is a synthetic one of 24 brokers. `python -m tests.notebook` writes it, runs this file, and keeps the
# answers in `notebook.ipynb`.

# %%
import os

from metadata_log import replay

log = replay.open(os.environ.get("METAQUORUM_LOG", "export"))
log


# %% [markdown]
# Answers are DuckDB relations (`.df()`, `.show()`, `.to_arrow_table()`), or, with `replay.open(..., "spark")`, Spark
# DataFrames. Here they are shown as tables.


# %%
class Table(str):
    """Text that a notebook shows as Markdown."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


def show(relation, most=8):
    """Return the first rows of a relation as a table."""
    rows = relation.limit(most).fetchall()
    lines = [relation.columns, ["---"] * len(relation.columns), *rows]
    return Table("\n".join("| " + " | ".join(map(str, row)) + " |" for row in lines))


show(
    log.sql(
        "SELECT type_name, count(*) AS records FROM records GROUP BY type_name ORDER BY records DESC, type_name"
    )
)

# %% [markdown]
# ## What went wrong, and what did it cost?

# %%
show(
    log.sql("""
        SELECT
            incident, strftime(from_ts, '%H:%M:%S') AS at, trigger, node_id, verdict,
            leaders_moved, isr_shrinks, duration_ms
        FROM incidents ORDER BY duration_ms DESC, from_offset
    """)
)

# %%
show(
    log.sql("""
        SELECT broker_id, availability_percent, outages, longest_outage_ms
        FROM broker_availability ORDER BY availability_percent, broker_id
    """),
    most=5,
)

# %% [markdown]
# ## Who led a partition, and why did that change?

# %%
busiest = log.sql("""
    SELECT topic_name, partition FROM leader_intervals
    GROUP BY topic_name, partition ORDER BY count(*) DESC, topic_name, partition LIMIT 1
""").fetchall()
topic, partition = busiest[0] if busiest else ("", 0)
show(
    log.sql(f"""
        SELECT leader, from_offset, to_offset, duration_ms, cause_code, ended_by FROM leader_intervals
        WHERE topic_name = '{topic}' AND partition = {partition} ORDER BY from_offset
    """)
)

# %% [markdown]
# ## Time travel
#
# The state at any offset or time: here where the longest incident begins. An offset inside a batch is cut back to the
# batch's beginning; `position.note` says so.

# %%
worst = log.sql("SELECT from_offset FROM incidents ORDER BY duration_ms DESC, from_offset LIMIT 1").fetchall()
at = worst[0][0] if worst else (log.first.end_offset + log.last.end_offset) // 2
later = min(at + 100, log.last.end_offset)
state = log.state_at(at)
state.position.note

# %%
show(
    state["partitions"].aggregate("leader, count(*) AS leaderships").order("leaderships DESC, leader"), most=5
)

# %% [markdown]
# What differs between two moments, and what happened to one thing:

# %%
show(log.diff(at, later).select("key, kind, field, before, after"))

# %%
changed = log.sql("""
    SELECT broker_id FROM broker_changes GROUP BY broker_id ORDER BY count(*) DESC, broker_id LIMIT 1
""").fetchall()
show(log.history(f"broker:{changed[0][0]}" if changed else "cluster"))

# %% [markdown]
# A part of the log, from there to its end, where intervals are counted within it:

# %%
part = log.between(at)
show(part.sql("SELECT kind, count(*) AS changes FROM isr_events GROUP BY kind ORDER BY kind"))

# %% [markdown]
# ## Is the log whole?

# %%
show(
    log.sql(
        "SELECT controller_epoch, missing, is_overlapped, clock_steps_back FROM log_health ORDER BY controller_epoch"
    )
)
