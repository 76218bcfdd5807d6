//! The node's lease against a fake API server while the clock of the machine jumps.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ferrolet::agents::lease::{LeaseConfig, LeaseHandle};
use serde_json::{Value, json};

use crate::fakes::api::FakeApi;
use crate::harness::wait::until;
use crate::it_kube::client;

const LONG: Duration = Duration::from_secs(60);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
const SECOND: i64 = 1_000_000_000;
const YEAR: i64 = 365 * 24 * 3600 * SECOND;

/// What the machine's clock shows.
static WALL: AtomicI64 = AtomicI64::new(0);

fn wall() -> i64 {
    WALL.load(Ordering::Relaxed)
}

#[test]
fn renewals_go_on_when_the_clock_jumps_a_year_ahead_and_back() {
    let api = FakeApi::start();
    let api_client = client(api.kubeconfig("http", &json!({}), &json!({})), "/".as_ref());
    let (bell, registered) = crossbeam_channel::bounded(1);
    bell.send(()).expect("room");
    let now = 1_796_025_600 * SECOND;
    WALL.store(now, Ordering::Relaxed);
    let lease = LeaseHandle::start(LeaseConfig {
        node: "n".to_owned(),
        lasts_seconds: 1,
        api: api_client.clone(),
        node_uid: Box::new(|| Some("u".to_owned())),
        registered,
        renewed: Arc::default(),
        wall,
    });
    let lease = lease.expect("a thread");
    let micros = |object: &Value| -> Option<i64> {
        let text = object["spec"]["renewTime"].as_str()?;
        Some(text.parse::<jiff::Timestamp>().ok()?.as_microsecond())
    };
    // Three renewals after each jump, each later than the one before.
    let mut last = 0;
    for (jump, expect) in [(0, now), (YEAR, now + YEAR), (-YEAR, 0), (2 * YEAR, now + 2 * YEAR)] {
        WALL.store(now + jump, Ordering::Relaxed);
        if expect > 0 {
            until("a renewal by the new clock", LONG, || {
                let time = api.object(LEASE).and_then(|object| micros(&object));
                if time >= Some(expect / 1000) { Ok(()) } else { Err(format!("{time:?}")) }
            });
        }
        for _ in 0..3 {
            last = until("a later renewal", LONG, || {
                let time = api.object(LEASE).and_then(|object| micros(&object)).unwrap_or(0);
                if time > last { Ok(time) } else { Err(format!("{time} after {last}")) }
            });
        }
    }
    api_client.shut_down();
    drop(lease);
}
