//! When the node's status is sent.
//!
//! Layer L1, pure. What changed is sent at once; what did not is sent every `nodeStatusReportFrequency`,
//! with a random shift after each change, so that the nodes of a cluster do not come all together.

use std::time::Duration;

use crate::api::moment::Moment;

/// The state of one node's reports.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    every: Duration,
    last: Option<Sent>,
}

/// The newest report that arrived.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Moment,
    /// How long after it the next one is due, if nothing changes.
    next_after: Duration,
}

impl Pace {
    /// Nothing was sent yet; an unchanged status is due again after `every`.
    pub fn new(every: Duration) -> Self {
        Self { every, last: None }
    }

    /// Whether a report is due. The first one always is: an agent that starts tells how things stand.
    pub fn is_due(&self, changed: bool, now: Moment) -> bool {
        let Some(last) = self.last else { return true };
        changed || now.since(last.at) >= last.next_after
    }

    /// A report arrived. `dice` is between 0 and 1.
    pub fn sent(&mut self, changed: bool, now: Moment, dice: f64) {
        let shifted = changed || self.last.is_none();
        let next_after = if shifted { self.every.mul_f64(0.5 + dice.clamp(0.0, 1.0)) } else { self.every };
        self.last = Some(Sent { at: now, next_after });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn news_go_at_once_and_no_news_after_a_while() {
        let mut pace = Pace::new(Duration::from_secs(300));
        assert!(pace.is_due(false, at(0)), "the first");
        pace.sent(false, at(0), 0.25);
        assert!(pace.is_due(true, at(1)));
        assert!(!pace.is_due(false, at(224)));
        assert!(pace.is_due(false, at(225)));
        pace.sent(false, at(225), 0.25);
        assert!(!pace.is_due(false, at(524)), "no shift after a plain one");
        assert!(pace.is_due(false, at(525)));
        pace.sent(true, at(525), 1.0);
        assert!(!pace.is_due(false, at(974)));
        assert!(pace.is_due(false, at(975)));
    }
}
