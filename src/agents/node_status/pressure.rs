//! The node's pressure conditions: reads what is left, has it judged, and tells the sync loop what changed.
//!
//! On the `node` thread, at its own pace: it wakes nobody else. It evicts nothing.

use crate::api::moment::Moment;
use crate::api::pressure::{Pressures, Signal};
use crate::api::runtime_stats::ImageFs;
use crate::core::eviction::PressureJudge;
use crate::host::usage::signals::SignalReader;

/// What the node may run short of.
pub struct PressureWatch {
    judge: PressureJudge,
    signals: SignalReader,
    /// Takes the conditions when they change.
    tell: Box<dyn Fn(Pressures) + Send>,
    now: Pressures,
}

impl PressureWatch {
    /// Nothing is short until the first look.
    pub fn new(judge: PressureJudge, signals: SignalReader, tell: Box<dyn Fn(Pressures) + Send>) -> Self {
        Self { judge, signals, tell, now: Pressures::default() }
    }

    /// Whether there is anything to look for.
    pub(super) fn is_idle(&self) -> bool {
        self.judge.is_idle()
    }

    /// Whether it matters where images and writable layers lie.
    pub(super) fn needs_image_fs(&self) -> bool {
        self.judge.asks_for(&[
            Signal::ImageFsAvailable,
            Signal::ImageFsInodesFree,
            Signal::ContainerFsAvailable,
            Signal::ContainerFsInodesFree,
        ])
    }

    /// Where they lie.
    pub(super) fn set_image_fs(&mut self, told: &ImageFs) {
        self.signals.set_images(told);
    }

    /// Looks; the conditions that hold.
    pub(super) fn look(&mut self, now: Moment) -> Pressures {
        if self.is_idle() {
            return self.now;
        }
        let levels = self.signals.read();
        let found = self.judge.judge(&levels, now);
        if found != self.now {
            match found.names().as_slice() {
                [] => log::info!("the node is short of nothing any more"),
                names => log::warn!(
                    "{}: {}; some pods are refused for it, and none is evicted yet",
                    names.join(", "),
                    self.judge.shortages(&levels)
                ),
            }
            self.now = found;
            (self.tell)(found);
        }
        found
    }
}
