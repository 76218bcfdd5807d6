//! The metrics that only this agent has: its bounds, and whether anything waits at them.
//!
//! Statics, added to on any thread. Everything here is bounded (queues, pools, rates), and where a bound was met, something
//! waited or was left out: that is told here. Rows are in the order of names.

use super::{Counter, Counters, Gauge, Gauges, Registered, table};

table! {
    CONNECTION_LIMIT_MET: Counters("ferrolet_connection_limit_met_total", "Times that a server had as many connections as it may, so that the next ones waited.", &["server"]);
    EVENTS_DROPPED: Counter("ferrolet_events_dropped_total", "Events that were not told to the API server because too many waited.");
    LIMITER_WAITS: Counters("ferrolet_limiter_waits_total", "Times that something waited for its turn at a rate limit.", &["limiter"]);
    SERIES_REFUSED: Counter("ferrolet_metric_series_refused_total", "Observations that were not counted because a metric had too many series.");
    POOL_FULL: Counters("ferrolet_pool_full_total", "Times that work waited because a pool had as many threads as it may.", &["pool"]);
    POOL_LIMIT: Gauges("ferrolet_pool_limit_threads", "Threads that a pool may have.", &["pool"]);
    POOL_THREADS: Gauges("ferrolet_pool_threads", "Threads that a pool has.", &["pool"]);
    SYNC_HELD: Gauge("ferrolet_sync_loop_held_messages", "Messages of the sync loop that wait for room in a full channel.");
    SYNC_FULL: Counter("ferrolet_sync_loop_full_channels_total", "Turns of the sync loop that left messages waiting for room in a full channel.");
    SYNC_LONG_TURNS: Counter("ferrolet_sync_loop_long_turns_total", "Turns of the sync loop that took more than 100 ms.");
    SYNC_TURNS: Counter("ferrolet_sync_loop_turns_total", "Turns of the sync loop.");
    SYNC_WORKS: Gauge("ferrolet_sync_loop_works", "Works on pods that are under way.");
}
